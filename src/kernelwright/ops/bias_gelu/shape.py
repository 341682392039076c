"""What a call's activations look like as rows, and how the backward shares them."""

from __future__ import annotations

from kernelwright.contract import TensorSpec, rows_view
from kernelwright.contract.arithmetic import cdiv

WARP = 32


def rows_of(t: TensorSpec) -> tuple[int, int, int]:
    """(rows, columns, row stride)."""
    found = rows_view(t.shape, t.strides)
    assert found is not None, "the layout is rows"
    return found


def shares(rows: int, strips: int, blocks: int) -> tuple[int, int]:
    """(parts, rows of a part) where `strips` strips of columns and some `blocks` blocks in all
    share the rows evenly."""
    share = cdiv(rows, max(1, blocks // strips))
    return cdiv(rows, share), share
