"""How rows are laid over threads: what plans and `choose` both compute."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

REGISTERS = 64  # of a thread, for elements; 32 where a block has 1024 threads
CLUSTER = 8  # blocks; a larger cluster is not portable


class Rows(NamedTuple):
    """The rows of a call as kernels address them."""

    rows: int
    cols: int
    stride: int  # between rows of x, in elements
    width: int  # elements that every access may move at once

    @property
    def vectors(self) -> int:
        return self.cols // self.width


def rows_of(x) -> Rows:
    """Rows of logits, and the widest vector that they allow. Results are contiguous."""
    rows, cols, stride = rows_view(x.shape, x.strides)
    width = min(16, x.align) // x.itemsize
    while cols % width or stride % width:
        width //= 2
    return Rows(rows, cols, stride, width)


class Shape(NamedTuple):
    """How threads share a row: `vectors` a thread, `threads` a block, `blocks` a cluster."""

    vectors: int
    threads: int
    blocks: int = 1


def shape_of(r: Rows, itemsize: int, config: dict) -> Shape | None:
    """The shape nearest to a config of vectors a thread and blocks a cluster that holds a row: with
    more threads or, up to CLUSTER, more blocks than it says; or None."""
    size = max(1, r.width * itemsize // 4)
    blocks = config.get("blocks", 1)
    while True:
        n = cdiv(r.vectors, blocks)
        threads = min(1024, max(32, next_power_of_2(cdiv(n, config["vectors"]))))
        while threads <= 1024:
            vectors = cdiv(n, threads)
            if vectors * size <= (REGISTERS if threads <= 512 else REGISTERS // 2):
                return Shape(vectors, threads, blocks)
            threads *= 2
        if blocks == 1 or blocks == CLUSTER:
            return None
        blocks *= 2
