"""sort, argsort, msort: each row in order, from a network in shared memory to one launch per
digit."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import Rule, bind, recorded
from kernelwright.ops._out import written

from . import heuristics, spec


def _ours(side: str, teaching: tuple[Rung, ...] = ()) -> tuple[Rung, ...]:
    return (
        rungs.cuda(
            "bitonic",
            side,
            "rows in a block's shared memory, by a network",
            heuristics.fits_bitonic,
            heuristics.BITONIC if not side else heuristics.BITONIC[:1],
            heuristic=None if side else heuristics.choose_bitonic,
        ),
        *teaching,
        rungs.cuda(
            "onesweep",
            side,
            "one launch per digit: a tile looks back for where its elements go",
            heuristics.fits_tiles,
            heuristics.TILES if not side else heuristics.TILES[:1],
        ),
    )


RADIX = rungs.cuda(
    "radix",
    "",
    "three launches per digit: count, scan, scatter",
    heuristics.fits_tiles,
    heuristics.RADIX,
    dispatchable=False,
)
RUNGS = (
    *rungs.pytorch(manual="the places in order, and a gather by them", compiled=None),
    Rung("compiled", "inductor", "torch_rungs:native", "PyTorch's operator under torch.compile"),
    *_ours("", (RADIX,)),
)
RUNGS_VALUES = (
    *rungs.pytorch("_values", manual="places, and a gather by them", compiled=None),
    *_ours("_values"),
)
RUNGS_INDICES = (
    *rungs.pytorch("_indices", manual="a sort, its values thrown away", compiled=None),
    *_ours("_indices"),
)
RUNGS_BACKWARD = (
    *rungs.pytorch(
        "_backward", manual="the inverse permutation, and a gather by it", compiled=None
    ),
    rungs.cuda(
        "scatter",
        "_backward",
        "each gradient to its element, and no zeros first",
        heuristics.fits_backward,
        heuristics.THREADS,
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
LADDER_VALUES = Ladder(
    spec.VALUES,
    RUNGS_VALUES,
    __name__,
    heuristics.order,
    heuristics.bucket,
    peers="peers:PEERS",
)
LADDER_INDICES = Ladder(
    spec.INDICES, RUNGS_INDICES, __name__, heuristics.order, heuristics.bucket, peers="peers:PEERS"
)
_sort = bind(LADDER, LADDER_BACKWARD)
_indices = bind(LADDER_INDICES)


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _backward(ctx, gvalues):
    """Sorts again: for calls of the operator itself."""
    (x,) = ctx.saved_tensors
    return (torch.zeros_like(gvalues).scatter(-1, _indices(x.detach(), False), gvalues),)


_values = bind(LADDER_VALUES, rule=Rule(_save, _backward))


class Sorted(NamedTuple):
    """What `sort` returns."""

    values: torch.Tensor
    indices: torch.Tensor


def sort(
    input: torch.Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool = True,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> Sorted:
    """The elements along a dimension in order, and their former positions, as torch.sort.

    Args:
        input: any shape. Floating types, integers and bool have GPU rungs; other dtypes use
            PyTorch's kernels.
        dim: the dimension.
        descending: from the largest to the smallest.
        stable: accepted for compatibility; equal elements always keep their order.
        out: two tensors of the results' shape, or empty ones, to which values and indices are
            copied; no gradient is possible with them.

    Returns:
        (values, indices), both of the input's shape; `out` if it is given. NaN is greater than any
            number, and -0.0 equals 0.0.

    Raises:
        TypeError: input is not a tensor.
        IndexError: dim is out of range.
    """
    span = _span(input, dim)
    if input.ndim == 0:
        values, indices = _sort(input[None], descending)
        values, indices = values[0], indices[0]
    elif dim % span == span - 1:
        values, indices = _sort(input, descending)
    else:
        moved = _sort(input.movedim(dim, -1), descending)
        values, indices = (t.movedim(-1, dim).contiguous() for t in moved)
    if out is not None:
        return Sorted(written(out[0], values), written(out[1], indices))
    return Sorted(values, indices)


def argsort(
    input: torch.Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True
) -> torch.Tensor:
    """The positions of the elements along a dimension, in order, as torch.argsort: the indices of
    `sort` without its values.

    Args:
        input: any shape. Floating types, integers and bool have GPU rungs; other dtypes use
            PyTorch's kernels.
        dim: the dimension.
        descending: from the largest to the smallest.
        stable: accepted for compatibility; equal elements always keep their order.

    Returns:
        int64 indices of the input's shape.

    Raises:
        TypeError: input is not a tensor.
        IndexError: dim is out of range.
    """
    span = _span(input, dim)
    input = input.detach()
    if input.ndim == 0:
        return _indices(input[None], descending)[0]
    if dim % span == span - 1:
        return _indices(input, descending)
    return _indices(input.movedim(dim, -1), descending).movedim(-1, dim).contiguous()


def msort(input: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The elements along the first dimension in ascending order, as torch.msort: the values of
    `sort` without its indices. If the input requires a gradient, which needs the indices, `sort` is
    used.

    Args:
        input: any shape. Floating types, integers and bool have GPU rungs; other dtypes use
            PyTorch's kernels.
        out: a tensor of the input's shape, or an empty one, to which the result is copied; no
            gradient is possible with it.

    Returns:
        A tensor of the input's shape; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
    """
    arguments.tensor("input", input)
    if recorded(input):
        values = sort(input, 0).values
    elif input.ndim < 2:
        values = _values(input) if input.ndim else _values(input[None])[0]
    else:
        values = _values(input.movedim(0, -1)).movedim(-1, 0).contiguous()
    return values if out is None else written(out, values)


def _span(input: torch.Tensor, dim: int) -> int:
    """The number of dimensions from which `dim` selects one.

    Raises:
        TypeError, IndexError: as in `sort`.
    """
    arguments.tensor("input", input)
    arguments.dimension("dim", dim, input.ndim)
    span = max(input.ndim, 1)
    return span
