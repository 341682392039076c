"""The tensors of a call as rows."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.contract import TensorSpec, rows_view


def rows_of(tensors: Iterable[TensorSpec]) -> tuple[int, int, tuple[int, ...]]:
    """(rows, columns, row stride of each tensor), for tensors of the same shape. Tensors without
    gaps between their rows are treated as one row."""
    views = [rows_view(t.shape, t.strides) for t in tensors]
    rows, cols, _ = views[0]
    strides = tuple(v[2] for v in views)
    if all(s == cols for s in strides):
        return 1, rows * cols, (rows * cols,) * len(strides)
    return rows, cols, strides
