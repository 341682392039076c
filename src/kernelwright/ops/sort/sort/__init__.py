"""sort: each row in order, from a network in shared memory to one launch per digit."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec


def _pytorch(side: str, manual: str) -> tuple[Rung, ...]:
    return (
        *rungs.pytorch(side, manual=manual, compiled=None),
        Rung(
            "compiled",
            "inductor",
            f"torch_rungs:native{side}",
            "PyTorch's operator under torch.compile",
        ),
    )


RUNGS = (
    *_pytorch("", "the places in order, and a gather by them"),
    rungs.cuda(
        "bitonic",
        "",
        "rows in a block's shared memory, by a network",
        heuristics.fits_bitonic,
        heuristics.BITONIC,
        heuristic=heuristics.choose_bitonic,
    ),
    rungs.cuda(
        "radix",
        "",
        "three launches per digit: count, scan, scatter",
        heuristics.fits_tiles,
        heuristics.RADIX,
        serves=False,
    ),
    rungs.cuda(
        "onesweep",
        "",
        "one launch per digit: a tile looks back for where its elements go",
        heuristics.fits_tiles,
        heuristics.TILES,
    ),
)
RUNGS_BACKWARD = (
    *_pytorch("_backward", "the inverse permutation, and a gather by it"),
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
_sort = bind(LADDER, LADDER_BACKWARD)


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
    """The elements along a dimension in order, and where they were, as torch.sort.

    Args:
        input: any shape. Floating types, integers and bool have GPU rungs; PyTorch serves the rest.
        dim: the dimension.
        descending: from the largest to the smallest.
        stable: equal elements keep their order whether it is asked for or not.
        out: two tensors of the results' shape, or empty ones, that values and indices are copied
            to; a gradient is not possible then.

    Returns:
        (values, indices), both of the input's shape; `out` where it is given. A NaN is greater than
        any number, and -0.0 equals 0.0.

    Raises:
        TypeError: input is no tensor.
        IndexError: dim is out of range.
    """
    arguments.tensor("input", input)
    span = max(input.ndim, 1)
    if not -span <= dim < span:
        raise IndexError(f"dim: {dim} is out of range for a tensor of {input.ndim} dimensions")
    if input.ndim == 0:
        found = (t[0] for t in _sort(input[None], descending))
    elif dim in (-1, input.ndim - 1):
        found = _sort(input, descending)
    else:
        moved = _sort(input.movedim(dim, -1), descending)
        found = (t.movedim(-1, dim).contiguous() for t in moved)
    values, indices = found
    if out is not None:
        return Sorted(written(out[0], values), written(out[1], indices))
    return Sorted(values, indices)
