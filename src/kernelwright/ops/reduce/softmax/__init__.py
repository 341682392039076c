"""softmax along one dimension: the ladder from five kernels to one pass at DRAM speed."""

from __future__ import annotations

import torch
from torch.nn.functional import _get_softmax_dim

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, heuristics_superset, spec


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(side, supports=heuristics.fits_manual),
        rungs.numba(
            "block",
            side,
            "one block per row with a shared-memory tree, in Python",
            heuristics.fits_numba,
            heuristics.THREAD_CONFIGS,
        ),
        rungs.cuda(
            "naive",
            side,
            "the formula, one thread per row",
            heuristics.fits_rows,
            heuristics.THREAD_CONFIGS,
            dispatchable=False,
        ),
        rungs.triton(
            "columns",
            side,
            "any other dim: a tile iterates over rows, and its loads run along them",
            heuristics.fits_columns,
            heuristics.COLUMNS_CONFIGS,
        ),
        rungs.triton(
            "online",
            side,
            "any length: maximum and sum in one read, the result in a second",
            heuristics.fits_rows,
            heuristics.ONLINE_CONFIGS,
        ),
        rungs.cuda(
            "online",
            side,
            "the same with one block per row; the second read runs back to front",
            heuristics.fits_rows,
            heuristics.CUDA_ONLINE_CONFIGS,
        ),
        rungs.triton(
            "row",
            side,
            "one read: a row, or several short ones, in a program's registers",
            heuristics.fits_triton_row,
            heuristics.ROW_CONFIGS,
        ),
        rungs.cuda(
            "warp",
            side,
            "a row in a warp's registers, several rows in flight, no barrier",
            heuristics.fits_warp,
            heuristics.WARP_CONFIGS,
            heuristic=heuristics.choose_warp,
        ),
        Rung(
            "cuda_superset",
            "cuda",
            f"cuda_superset:superset{side}",
            "rows of any length in 16-byte vectors, by as many warps as they fill",
            supports=heuristics_superset.fits,
            configs=heuristics_superset.CONFIGS,
            heuristic=heuristics_superset.choose,
            sources=("cuda_superset.cu",),
        ),
        rungs.cuda(
            "block",
            side,
            "a row in a block's registers, one barrier",
            heuristics.fits_block,
            heuristics.BLOCK_CONFIGS,
            heuristic=heuristics.choose_block,
        ),
        rungs.cuda(
            "cluster",
            side,
            "a row in the registers of several multiprocessors",
            heuristics.fits_cluster,
            heuristics.CLUSTER_CONFIGS,
            heuristic=heuristics.choose_cluster,
        ),
    )


LADDER = Ladder(
    spec.FORWARD, _rungs(), __name__, heuristics.order, heuristics.bucket, "peers:PEERS"
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, heuristics.order, heuristics.bucket, "peers:PEERS"
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
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types use
            PyTorch's kernels.
        dim: the dimension whose elements sum to 1. With None, a dimension is chosen and a warning
            printed, as in PyTorch.
        dtype: cast the input to it first. Under CUDA autocast, 16-bit input is cast to float32.

    Returns:
        A tensor of the input's shape. A row that is all -inf, or contains +inf or NaN, becomes NaN.

    Raises:
        TypeError: input is not floating point.
        IndexError: dim is out of range.
    """
    arguments.tensor("input", input)
    ndim = input.ndim
    if dim is None:
        dim = _get_softmax_dim("softmax", ndim, _stacklevel)
    if type(dim) is not int or not -ndim <= dim < ndim:
        arguments.dimension("dim", dim, ndim)
        if ndim == 0:
            return softmax(input.unsqueeze(0), 0, dtype=dtype).squeeze(0)
    if dtype is None and torch.is_autocast_enabled() and input.is_cuda and input.itemsize == 2:
        dtype = torch.float32
    if dtype is not None:
        input = input.to(dtype)
    arguments.floating("input", input)
    if dim >= 0:  # from the end, so that the batch dimension that vmap prepends does not matter
        dim -= ndim
    if dim != -1 and input.stride(dim) == 1:
        return _softmax(input.movedim(dim, -1), -1).movedim(-1, dim)
    return _softmax(input, dim)
