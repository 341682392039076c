"""cat: tensors joined along any dimension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec

RUNGS = (
    Rung("manual", "torch", "torch_rungs:manual", "one copy per tensor", dispatchable=False),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own operator"),
    rungs.cuda("naive", "", "one element per thread", heuristics.fits, heuristics.THREADS),
    rungs.cuda("vec16", "", "16-byte stores for any widths", heuristics.fits, heuristics.VEC16),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
_cat = bind(LADDER, gradient=spec.gradient)


def cat(
    tensors: Sequence[torch.Tensor], dim: int = 0, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Tensors joined along a dimension, as torch.cat.

    Args:
        tensors: at least one, of the same shape except in `dim`; tensors of shape (0,) are skipped,
            as in PyTorch. Different dtypes are promoted. One kernel joins up to eight tensors; more
            are first joined in groups of eight, which moves all data once more. Elements of 1, 2, 4
            and 8 bytes have GPU rungs.
        dim: the dimension along which they are joined.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A contiguous tensor; `out` if it is given.

    Raises:
        TypeError: tensors is not a list or tuple of tensors.
        ValueError: tensors is empty, or holds tensors whose shapes do not agree.
        IndexError: dim is out of range.
    """
    parts, dim = _joined(tensors, dim)
    dtype = reduce(torch.promote_types, (x.dtype for x in tensors))
    lead, behind = parts[0].shape[:dim], parts[0].shape[dim + 1 :]
    rows = [x.to(dtype).reshape(*lead, x.shape[dim:].numel()) for x in parts]
    y = _rows_joined(rows).reshape(*lead, sum(x.shape[dim] for x in parts), *behind)
    return y if out is None else written(out, y)


def _rows_joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """Matrices joined along their columns, at most eight at a time."""
    while len(parts) > spec.MOST:
        parts = [_rows_joined(parts[i : i + spec.MOST]) for i in range(0, len(parts), spec.MOST)]
    return _cat(*parts, *[None] * (spec.MOST - len(parts)))


def _joined(tensors: Sequence[torch.Tensor], dim: int) -> tuple[list[torch.Tensor], int]:
    """(the tensors that are not skipped, the dimension counted from the front).

    Raises:
        TypeError, ValueError, IndexError: as in `cat`.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"tensors: must be a list or tuple, is a {type(tensors).__name__}")
    if not tensors:
        raise ValueError("tensors: must hold at least one tensor")
    for k, x in enumerate(tensors):
        arguments.tensor(f"tensors[{k}]", x)
        if x.ndim == 0:
            raise ValueError(f"tensors[{k}]: has no dimensions, cannot be concatenated")
    first = next((x for x in tensors if x.shape != (0,)), tensors[0])
    if not -first.ndim <= dim < first.ndim:
        raise IndexError(f"dim: {dim} is out of range for tensors of {first.ndim} dimensions")
    dim %= first.ndim
    for k, x in enumerate(tensors):
        others = (*first.shape[:dim], *first.shape[dim + 1 :])
        left_out = x.shape == (0,) and first.ndim > 1
        if not left_out and (*x.shape[:dim], *x.shape[dim + 1 :]) != others:
            raise ValueError(
                f"tensors[{k}]: has shape {tuple(x.shape)}, which does not fit "
                f"{tuple(first.shape)} but for dimension {dim}"
            )
    return [x for x in tensors if x.ndim == first.ndim], dim
