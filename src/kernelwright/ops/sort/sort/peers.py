"""CuPy's sort, based on Thrust and CUB; imported only for timing. It does not support bfloat16."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer


def _sort(x):
    return _of_cupy("sort", x)


def _argsort(x, descending):
    if descending:
        raise NotImplementedError("CuPy sorts in ascending order only")
    return _of_cupy("argsort", x)


def _of_cupy(function: str, x: torch.Tensor):
    import cupy

    sorting, theirs = getattr(cupy, function), cupy.from_dlpack(x)

    def call():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return torch.from_dlpack(sorting(theirs, axis=-1))

    return call


PEERS = (
    Peer("cupy", "msort", _sort, "cupy", syncs_host=True),
    Peer("cupy", "argsort", _argsort, "cupy", syncs_host=True),
)
