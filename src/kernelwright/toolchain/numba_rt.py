"""Numba kernels: on a GPU through numba.cuda, without one in its simulator."""

from __future__ import annotations

import os
import sys
from functools import cache

import torch

from kernelwright.contract import Launch, NumbaKernel, Scalar

from .errors import ToolchainError


@cache
def activate_simulator() -> None:
    """Import numba.cuda as a simulator.

    Raises:
        ToolchainError: numba was imported before, in its compiling mode.
    """
    if "numba" in sys.modules and os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
        raise ToolchainError(
            "numba was imported before kernelwright could switch it to its simulator; "
            "set NUMBA_ENABLE_CUDASIM=1 or import kernelwright's operators first"
        )
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    import numba.cuda  # noqa: F401


def simulate(kernel: NumbaKernel, step: Launch, values: list) -> None:
    """Run one launch in the simulator: `values` are CPU tensors and Scalars with numbers."""
    arguments = [_scalar(v) if isinstance(v, Scalar) else flat(v).numpy() for v in values]
    _jit(kernel.fn)[step.grid, step.block, 0, step.shared](*arguments)


def flat(t: torch.Tensor) -> torch.Tensor:
    """The tensor's memory from its first element to its last, as one dimension."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((extent,), (1,))


def _scalar(s: Scalar):
    import numpy as np

    kind = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}[s.ctype]
    return kind(s.value)


@cache
def _jit(fn):
    from numba import cuda

    return cuda.jit(fn)
