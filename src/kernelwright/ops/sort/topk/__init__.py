"""topk: the largest elements of each row, from sorting the whole row to reading it once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(
        manual="the first k indices of a sort",
        native="the first k elements of a stable sort",
        compiled=None,
    ),
    Rung(
        "cuda_sorted",
        "cuda",
        "cuda:sorted_",
        "a block sorts its row in shared memory",
        supports=heuristics.fits_sorted,
        configs=heuristics.WARP,
        sources=("cuda_sorted.cu",),
    ),
    rungs.cuda(
        "warp",
        "",
        "one warp per row: k times, the largest remaining element",
        heuristics.fits_warp,
        heuristics.WARP,
    ),
    rungs.cuda(
        "select",
        "",
        "one read: candidates for the k largest are kept in a buffer",
        heuristics.fits,
        heuristics.ROW,
    ),
)
RUNGS_BACKWARD = (
    *rungs.pytorch(
        "_backward",
        manual="each column compared with each index",
        native="zeros, then PyTorch's scatter",
        compiled=None,
    ),
    rungs.cuda(
        "zeros",
        "_backward",
        "zeros, k of which are replaced, in one launch",
        heuristics.fits_backward,
        heuristics.ZEROS,
    ),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    RUNGS_BACKWARD,
    __name__,
    heuristics.order_backward,
    heuristics.bucket_backward,
)
_topk = bind(LADDER, LADDER_BACKWARD)


class TopK(NamedTuple):
    """What `topk` returns."""

    values: torch.Tensor
    indices: torch.Tensor


def topk(
    input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> TopK:
    """The k largest elements along a dimension and their indices, as torch.topk.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs, for k up to 1,024; in other
            cases PyTorch's sort is used.
        k: number of elements, at most the size of the dimension.
        dim: the dimension.
        largest: if False, the smallest elements.
        sorted: accepted for compatibility; results are always in order.

    Returns:
        (values, indices), with k elements in `dim`, in order. Equal elements are in the order of
        their indices, which torch.topk does not specify. A NaN is greater than any number.

    Raises:
        TypeError: input is not a tensor.
        IndexError: dim is out of range.
        ValueError: k is negative or larger than the dimension.
    """
    arguments.tensor("input", input)
    arguments.dimension("dim", dim, input.ndim)
    if input.ndim == 0:
        values, indices = topk(input[None], k, 0, largest)
        return TopK(values[0], indices[0]) if k else TopK(values, indices)
    columns = input.shape[dim]
    if not isinstance(k, (int, torch.SymInt)):
        raise TypeError(f"k: must be an integer, is a {type(k).__name__}")
    if not 0 <= k <= columns:
        raise ValueError(f"k: {k} is not between 0 and {columns}, the size of dimension {dim}")
    x = input.movedim(dim, -1)
    values, indices = _topk(x, columns, k, largest)
    return TopK(values.movedim(-1, dim), indices.movedim(-1, dim))
