"""Rows that kernels move through superset.cuh: which calls qualify, and how a team shares a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernelwright.contract import TensorSpec, rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

VECTOR = 16  # bytes
WORDS = 4  # registers per vector
SMALL_BLOCK = 128  # threads per block, for teams of at most a warp
MOST_THREADS = 1024


class Team(NamedTuple):
    """How threads share a row: `vectors` per thread, `threads` per row, `block` threads per
    block."""

    vectors: int
    threads: int
    block: int

    @property
    def rows(self) -> int:
        """Rows per block."""
        return self.block // self.threads


def out_of_step(rows: Mapping[str, TensorSpec]) -> str | None:
    """Why the rows of these tensors and of a new result do not all start at the same offset from a
    16-byte boundary; None if they do."""
    for name, t in rows.items():
        n_rows, cols, stride = rows_view(t.shape, t.strides)
        if t.align < VECTOR:
            return f"{name}: its memory is not aligned to 16 bytes"
        if n_rows > 1 and (stride - cols) * t.itemsize % VECTOR:
            return f"{name}: its rows and those of a result are aligned differently"
    return None


def touched(t: TensorSpec) -> int:
    """The largest number of vectors that a row of a tensor overlaps."""
    rows, cols, stride = rows_view(t.shape, t.strides)
    width = VECTOR // t.itemsize
    if rows == 1 or stride % width == 0:
        return cdiv(cols, width)
    return cdiv(cols + width - 1, width)


def team(n: int, aim: int, words: int) -> Team | None:
    """The team for rows of n vectors with about `aim` vectors per thread; None if such a row does
    not fit in the registers of a block.

    Args:
        words: registers that a thread needs per vector.
    """
    threads = min(cdiv(n, aim), MOST_THREADS)
    threads = 32 * cdiv(threads, 32) if threads > 16 else max(4, next_power_of_2(threads))
    while threads <= MOST_THREADS:
        vectors = cdiv(n, threads)
        if vectors * words <= (64 if threads <= MOST_THREADS // 2 else 32):
            return Team(vectors, threads, max(threads, SMALL_BLOCK if threads <= 32 else 0))
        threads = 2 * threads if threads < 32 else threads + 32
    return None
