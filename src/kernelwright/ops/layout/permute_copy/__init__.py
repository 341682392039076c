"""permute_copy and transpose_copy: matrix transpose in shared memory, for any permutation."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec

TRITON = ({"side": 32, "num_warps": 4}, {"side": 64, "num_warps": 8})
RUNGS = (
    Rung(
        "manual", "torch", "torch_rungs:manual", "elements by computed indices", dispatchable=False
    ),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own operator"),
    rungs.cuda(
        "naive", "", "one element per thread", heuristics.fits_any, heuristics.THREADS
    ),
    rungs.cuda(
        "tile", "", "a tile through shared memory", heuristics.fits_tiles, heuristics.SQUARE,
        dispatchable=False,
    ),
    rungs.cuda(
        "padded", "", "a row stride of 33 in the tile: no bank conflicts", heuristics.fits_tiles,
        heuristics.SQUARE,
    ),
    rungs.triton(
        "tile", "", "a tile per program, transposed by the compiler", heuristics.fits_tiles, TRITON
    ),
    rungs.cuda(
        "swizzled", "", "16-byte vectors in both directions", heuristics.fits_swizzled,
        heuristics.SWIZZLED,
    ),
    rungs.cuda(
        "rows", "", "the last dimension stays last: 16-byte vectors", heuristics.fits_rows,
        heuristics.ROWS
    ),
)  # fmt: skip
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
_permute_copy = bind(LADDER, gradient=spec.gradient, differentiable="native")


def permute_copy(
    input: torch.Tensor, dims: Sequence[int], *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A contiguous copy of input with its dimensions in another order, as torch.permute_copy.

    Args:
        input: any shape, strides and dtype; elements of 1, 2, 4 and 8 bytes have GPU rungs.
        dims: for each dimension of the result, the dimension of input that it is.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A contiguous tensor; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
        IndexError: dims names a dimension that input does not have.
        ValueError: dims does not name each dimension once.
    """
    arguments.tensor("input", input)
    ndim, order = input.ndim, []
    for d in dims:
        if not -ndim <= d < ndim:
            raise IndexError(f"dims: {d} is out of range for a tensor of {ndim} dimensions")
        order.append(d - ndim if d >= 0 else d)
    if sorted(order) != list(range(-ndim, 0)):
        raise ValueError(f"dims: {tuple(dims)} does not name each of {ndim} dimensions once")
    y = _permute_copy(input, _moved(order))
    return y if out is None else written(out, y)


def transpose_copy(
    input: torch.Tensor, dim0: int, dim1: int, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A contiguous copy of input with two dimensions swapped, as torch.transpose_copy.

    Args:
        input: any shape, strides and dtype; elements of 1, 2, 4 and 8 bytes have GPU rungs.
        dim0, dim1: the dimensions.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A contiguous tensor; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
        IndexError: dim0 or dim1 is out of range.
    """
    arguments.tensor("input", input)
    span, dims = max(input.ndim, 1), list(range(input.ndim))
    for name, d in (("dim0", dim0), ("dim1", dim1)):
        if not -span <= d < span:
            raise IndexError(f"{name}: {d} is out of range for a tensor of {input.ndim} dimensions")
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return permute_copy(input, dims, out=out)


def _moved(dims: list[int]) -> tuple[int, ...]:
    """The dimensions without the leading ones that keep their positions."""
    while len(dims) > 1 and dims[0] == -len(dims):
        dims = dims[1:]
    return tuple(dims)
