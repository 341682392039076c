"""How operands lie in memory, and the sizes of tiles, for `supports` and plans alike."""

from __future__ import annotations

from typing import NamedTuple


class Order(NamedTuple):
    """How the matrices of an operand lie in memory.

    Attributes:
        name: "kAlongK" where neighbours in memory are neighbours along k, "kAcross" where they are
            neighbours along m or n, "kAcrossBy16B" where these may be read 16 bytes at a time; as
            operand.cuh calls them.
        line: elements from one line of memory to the next.
        batch: elements from one matrix to the next.
    """

    name: str
    line: int
    batch: int


def order_of(t, k_dim: int) -> Order | None:
    """The order of an operand whose dimension along k is `k_dim`; None where neither of its last
    two dimensions is one of neighbours."""
    across = -3 - k_dim  # -1 and -2 are each other's
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
