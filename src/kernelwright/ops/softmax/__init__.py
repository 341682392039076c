"""softmax along one dimension: the ladder from five kernels to one pass at DRAM speed."""

from __future__ import annotations

import torch
from torch.nn.functional import _get_softmax_dim

from kernelwright.contract import Ladder, Rung, arguments
from kernelwright.dispatch import bind

from . import choose, spec


def _cuda(name: str, backward: str, idea: str, supports, configs, **more) -> Rung:
    """The rung of cuda_<name>.cu, planned by cuda.<name>."""
    return Rung(
        f"cuda_{name}",
        "cuda",
        f"cuda:{name}{backward}",
        idea,
        supports=supports,
        configs=configs,
        sources=(f"cuda_{name}.cu",),
        **more,
    )


def _rungs(backward: str = "") -> tuple[Rung, ...]:
    """The ladder from the bottom up; `backward` is the suffix of the backward's entries."""
    return (
        Rung(
            "manual",
            "torch",
            f"torch_rungs:manual{backward}",
            "the formula, a kernel a line",
            supports=choose.fits_manual,
            serves=False,
        ),
        Rung("native", "torch", f"torch_rungs:native{backward}", "PyTorch's own operator"),
        Rung(
            "compiled",
            "inductor",
            f"torch_rungs:manual{backward}",
            "the formula, fused by torch.compile",
            supports=choose.fits_manual,
        ),
        Rung(
            "numba_block",
            "numba",
            f"numba_block:plan{backward}",
            "a block a row with a shared-memory tree, in Python",
            supports=choose.fits_numba,
            configs=choose.THREAD_CONFIGS,
            serves=False,
        ),
        _cuda(
            "naive",
            backward,
            "the formula, one thread a row",
            choose.fits_rows,
            choose.THREAD_CONFIGS,
            serves=False,
        ),
        Rung(
            "triton_columns",
            "triton",
            f"triton_columns:plan{backward}",
            "any other dim: a tile walks down, its loads run along the rows",
            supports=choose.fits_columns,
            configs=choose.COLUMNS_CONFIGS,
        ),
        Rung(
            "triton_online",
            "triton",
            f"triton_online:plan{backward}",
            "any length: maximum and sum in one read, the result in a second",
            supports=choose.fits_rows,
            configs=choose.ONLINE_CONFIGS,
        ),
        _cuda(
            "online",
            backward,
            "the same by a block's threads, second read back to front",
            choose.fits_rows,
            choose.CUDA_ONLINE_CONFIGS,
        ),
        Rung(
            "triton_row",
            "triton",
            f"triton_row:plan{backward}",
            "one read: a row, or several short ones, in a program's registers",
            supports=choose.fits_triton_row,
            configs=choose.ROW_CONFIGS,
        ),
        _cuda(
            "warp",
            backward,
            "a row in a warp's registers, several rows in flight, no barrier",
            choose.fits_warp,
            choose.WARP_CONFIGS,
            heuristic=choose.choose_warp,
        ),
        _cuda(
            "block",
            backward,
            "a row in a block's registers, one barrier",
            choose.fits_block,
            choose.BLOCK_CONFIGS,
            heuristic=choose.choose_block,
        ),
        _cuda(
            "cluster",
            backward,
            "a row in the registers of several multiprocessors",
            choose.fits_cluster,
            choose.CLUSTER_CONFIGS,
            heuristic=choose.choose_cluster,
        ),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, choose.order, choose.bucket, "peers:PEERS")
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, choose.order, choose.bucket, "peers:PEERS"
)
_softmax = bind(LADDER, LADDER_BACKWARD)


def softmax(
    input: torch.Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """exp(x - max x) / sum(exp(x - max x)) along `dim`, as torch.nn.functional.softmax.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types are
            served by PyTorch.
        dim: the dimension whose elements sum to 1. None warns and guesses, as PyTorch does.
        dtype: cast the input to it first. Under CUDA autocast, 16-bit input is cast to float32.

    Returns:
        A tensor of the input's shape. A row that is all -inf, or holds +inf or NaN, is NaN.

    Raises:
        TypeError: input is not floating point.
        IndexError: dim is out of range.
    """
    arguments.tensor("input", input)
    ndim = input.ndim
    if dim is None:
        dim = _get_softmax_dim("softmax", ndim, _stacklevel)
    if not -ndim <= dim < ndim:
        if ndim == 0 and dim in (-1, 0):
            return softmax(input.unsqueeze(0), 0, dtype=dtype).squeeze(0)
        raise IndexError(f"dim: {dim} is out of range for a tensor of {ndim} dimensions")
    if dtype is None and torch.is_autocast_enabled() and input.is_cuda and input.itemsize == 2:
        dtype = torch.float32
    if dtype is not None:
        input = input.to(dtype)
    arguments.floating("input", input)
    if dim >= 0:
        dim -= (
            ndim  # counted from the back, a batch dimension that vmap puts in front changes nothing
        )
    if dim != -1 and input.stride(dim) == 1:
        return _softmax(input.movedim(dim, -1), -1).movedim(-1, dim)
    return _softmax(input, dim)
