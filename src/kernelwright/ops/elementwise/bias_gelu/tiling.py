"""The activations of a call as rows."""

from __future__ import annotations

from kernelwright.contract import TensorSpec, rows_view

WARP = 32


def rows_of(t: TensorSpec) -> tuple[int, int, int]:
    """(rows, columns, row stride)."""
    rows = rows_view(t.shape, t.strides)
    assert rows is not None, "the layout is rows"
    return rows
