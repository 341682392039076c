"""How a row is distributed over threads: computed by the plans and by `choose`.

A config states the target (vectors per thread, blocks per cluster). The functions here turn it into
a launch that holds the row, so that every config is valid for every call that fits the rung.
"""

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
    strides: tuple[int, ...]  # of rows, one per input, in elements
    width: int  # elements that every access may move together

    @property
    def vectors(self) -> int:
        return self.cols // self.width


def rows_of(*inputs) -> Rows:
    """The rows of inputs that pass `fits_rows`, and the widest vector that all of them allow."""
    views = [rows_view(t.shape, t.strides) for t in inputs]
    rows, cols, _ = views[0]
    width = 16 // inputs[0].itemsize
    steps = (cols, *(v[2] for v in views))
    while any(s % width for s in steps) or any(t.align < width * t.itemsize for t in inputs):
        width //= 2
    return Rows(rows, cols, tuple(v[2] for v in views), width)


class Shape(NamedTuple):
    """How threads share a row: `vectors` per thread, `threads` per block, `blocks` per cluster."""

    vectors: int
    threads: int
    blocks: int = 1


def block_shape(n: int, config: dict, size: int, blocks: int = 1) -> Shape | None:
    """The shape closest to a config that holds n vectors of `size` registers, or None."""
    threads = next_power_of_2(cdiv(n, blocks * config["vectors"]))
    threads = min(1024, max(32, threads))
    while True:
        vectors = cdiv(n, blocks * threads)
        if vectors * size <= (REGISTERS if threads <= 512 else REGISTERS // 2):
            return Shape(vectors, threads, blocks)
        if threads == 1024:
            return None
        threads *= 2


def cluster_shape(n: int, config: dict, size: int) -> Shape | None:
    """As `block_shape`, for a cluster of the config's blocks, or of more if the row needs them."""
    blocks = config["blocks"]
    while blocks < CLUSTER and block_shape(n, config, size, blocks) is None:
        blocks *= 2
    return block_shape(n, config, size, blocks)


class WarpShape(NamedTuple):
    """How lanes share rows: `vectors` per lane, `lanes` per row, `rows` at once."""

    vectors: int
    lanes: int
    rows: int


def warp_shape(r: Rows, config: dict, itemsize: int) -> WarpShape | None:
    """The shape closest to a config in which a lane holds its part of every input, or None."""
    lanes = min(32, next_power_of_2(r.vectors))
    vectors = cdiv(r.vectors, lanes)
    held = len(r.strides) * vectors * words(r.width, itemsize)
    if held > REGISTERS or vectors * r.width > REGISTERS:
        return None
    room = min(REGISTERS // held, REGISTERS // 2 // (vectors * r.width))
    return WarpShape(vectors, lanes, max(1, min(config["rows"], room)))


def words(width: int, itemsize: int) -> int:
    """Registers per vector; a single element takes a whole register."""
    return max(1, width * itemsize // 4)
