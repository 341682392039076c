"""The memory layout of operands, and sizes of tiles, for `supports` and plans."""

from __future__ import annotations

from typing import NamedTuple


class Order(NamedTuple):
    """The memory layout of an operand's matrices.

    Attributes:
        name: as in operand.cuh: "kAlongK" if elements are contiguous along k, "kAcross" if they are
            contiguous along m or n, "kAcrossBy16B" if these can be read 16 bytes at a time.
        line: elements between lines of memory.
        batch: elements between matrices.
    """

    name: str
    line: int
    batch: int


def order_of(t, k_dim: int) -> Order | None:
    """The layout of an operand whose dimension along k is `k_dim`; None if neither of its last two
    dimensions is contiguous."""
    across = -3 - k_dim  # the other one of -1 and -2
    batch = t.stride(0) if t.ndim == 3 else 0
    if t.stride(k_dim) == 1 or t.shape[k_dim] == 1:
        return Order("kAlongK", t.stride(across), batch)
    if t.stride(across) != 1 and t.shape[across] != 1:
        return None
    line = t.stride(k_dim)
    even = all(x * t.dtype.itemsize % 16 == 0 for x in (line, batch, t.shape[across]))
    return Order("kAcrossBy16B" if even and t.align == 16 else "kAcross", line, batch)


def by_rows(t) -> bool:
    """Whether rows of a matrix are contiguous."""
    return t.ndim == 2 and (t.stride(1) == 1 or t.shape[1] == 1)
