"""How slabs of channels are distributed over the registers of clusters: shared by plans and
heuristics.py."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernelwright.contract.arithmetic import cdiv

from .tiling import Call

SECTOR = 32  # bytes
CLUSTER = 8  # blocks: the largest portable cluster
# by the threads of a block: vectors that a thread can hold of one tensor, and of two tensors
HELD = {256: (50, 16), 512: (16, 6)}
GROUPS = 128  # of a slab: a thread merges the sums of one group


def most_held(c: Call) -> int:
    """Vectors of each tensor that a block can hold."""
    return max(threads * held[len(c.streams) - 1] for threads, held in HELD.items())


class Matrix(NamedTuple):
    """Each sample as a matrix: `rows` rows, `step` elements apart, of `channels` adjacent elements;
    `per` adjacent ones belong to one group. An access moves `width` elements."""

    samples: int
    rows: int
    step: int
    channels: int
    per: int
    width: int


def matrix_of(c: Call) -> Matrix:
    """Channels last, a row is a position. Channels first (batch_norm), a row is a sample, and a
    group consists of the positions of a channel: rows of any length are read as whole vectors."""
    if c.last:
        return Matrix(c.samples, c.length, c.steps[0], c.channels, c.per, c.width)
    row = c.channels * c.length
    width = math.gcd(16 // c.itemsize, row, *(t.align // c.itemsize for t in c.streams))
    return Matrix(1, c.samples, row, row, c.length, width)


class Held(NamedTuple):
    """Slabs of `channels` channels, `columns` vectors; each of `blocks` blocks of `threads` threads
    holds `vectors` vectors per thread."""

    matrix: Matrix
    channels: int
    columns: int
    threads: int
    blocks: int
    vectors: int

    @property
    def slabs(self) -> int:
        return self.matrix.samples * (self.matrix.channels // self.channels)


def held_of(c: Call, config) -> Held | None:
    """A slab in a cluster of the config's blocks or, if it needs more, of more; in blocks of
    another size if these do not hold it. Its rows have the config's bytes, or fewer, but at least a
    sector, if no cluster holds that; None if no cluster holds any."""
    m = matrix_of(c)
    for channels in slabs(m, c.itemsize, config["slab"]):
        columns = channels // m.width
        for threads in dict.fromkeys((config["threads"], *HELD)):
            blocks = config["blocks"]
            while columns <= threads and blocks <= CLUSTER:
                vectors = cdiv(cdiv(m.rows, blocks), threads // columns)
                if vectors <= HELD[threads][len(c.streams) - 1]:
                    return Held(m, channels, columns, threads, blocks, vectors)
                blocks *= 2
    return None


def slabs(m: Matrix, itemsize: int, size: int) -> list[int]:
    """Numbers of channels of a slab that are whole groups and vectors, divide the number of all
    channels, and whose rows have a sector, unless they are all channels. The first is the smallest
    whose rows have `size` bytes, or the largest there is; smaller ones follow in descending
    order."""
    unit = math.lcm(m.per, m.width)
    most = min(m.channels, max(HELD) * m.width, GROUPS * m.per)
    fit = [
        n
        for n in range(unit, most + 1, unit)
        if m.channels % n == 0 and (n * itemsize >= SECTOR or n == m.channels)
    ]
    first = next((i for i, n in enumerate(fit) if n * itemsize >= size), len(fit) - 1)
    return fit[first::-1] if fit else []
