"""Rows as kernels move them through superset.cuh: which calls, and how a team shares a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernelwright.contract import TensorSpec, rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

VECTOR = 16  # bytes
WORDS = 4  # registers of a vector
SMALL_BLOCK = 128  # threads of a block of teams of up to a warp
MOST_THREADS = 1024


class Team(NamedTuple):
    """How threads share a row: `vectors` each, `threads` a row, `block` a block."""

    vectors: int
    threads: int
    block: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.block // self.threads


def out_of_step(rows: Mapping[str, TensorSpec]) -> str | None:
    """Why the rows of these tensors, beside those of a new result, do not all start equally far
    from a 16-byte boundary; None if they do."""
    for name, t in rows.items():
        n_rows, cols, stride = rows_view(t.shape, t.strides)
        if t.align < VECTOR:
            return f"{name}: its memory starts off a 16-byte boundary"
        if n_rows > 1 and (stride - cols) * t.itemsize % VECTOR:
            return f"{name}: its rows and those of a result start differently far from a boundary"
    return None


def touched(t: TensorSpec) -> int:
    """Vectors that a row of a tensor touches at most."""
    rows, cols, stride = rows_view(t.shape, t.strides)
    width = VECTOR // t.itemsize
    if rows == 1 or stride % width == 0:
        return cdiv(cols, width)
    return cdiv(cols + width - 1, width)


def team(n: int, aim: int, words: int) -> Team | None:
    """The team for rows of n vectors with about `aim` vectors a thread; None if no block's
    registers hold such a row.

    Args:
        words: registers that a thread holds for a vector.
    """
    threads = min(cdiv(n, aim), MOST_THREADS)
    threads = 32 * cdiv(threads, 32) if threads > 16 else max(4, next_power_of_2(threads))
    while threads <= MOST_THREADS:
        vectors = cdiv(n, threads)
        if vectors * words <= (64 if threads <= MOST_THREADS // 2 else 32):
            return Team(vectors, threads, max(threads, SMALL_BLOCK if threads <= 32 else 0))
        threads = 2 * threads if threads < 32 else threads + 32
    return None
