"""How rows are distributed over threads: shared by plans and `choose`."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

REGISTERS = 64  # registers of a thread for elements; 32 in blocks of 1024 threads
CLUSTER = 8  # blocks; a larger cluster is not portable


class Rows(NamedTuple):
    """The rows of a call in the form in which kernels address them."""

    rows: int
    cols: int
    stride: int  # between rows of x, in elements
    width: int  # elements that every access may move together

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
    """How threads share a row: `vectors` per thread, `threads` per block, `blocks` per cluster."""

    vectors: int
    threads: int
    blocks: int = 1


def shape_of(r: Rows, itemsize: int, config: dict) -> Shape | None:
    """The shape closest to a config (vectors per thread, blocks per cluster) that holds a row, with
    more threads or, up to CLUSTER, more blocks than the config states; or None."""
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
