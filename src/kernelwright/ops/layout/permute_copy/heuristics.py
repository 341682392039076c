"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract.arithmetic import cdiv, gcd
from kernelwright.contract.eligibility import kind, log2

from .tiling import MOST_OUTER, tiles, walk

SIZES = (1, 2, 4, 8)  # bytes of an element
MOST_DIMS = MOST_OUTER + 2
MAX_GRID, MAX_GRID_Y = 2**31 - 1, 65535
ROW = 128  # bytes of a row of a tile

THREADS = ({"block": 256},)
ROWS = ({"block": 256}, {"block": 128})
SQUARE = ({"down": 8},)  # rows of threads on a tile of 32 x 32
SWIZZLED = ({"block": 128}, {"block": 64})


def _fits(x):
    if x.itemsize not in SIZES:
        return f"elements of {x.itemsize} bytes are not supported"
    return None


def fits_any(gpu, x, dims):
    if len(walk(x, tuple(dims))) > MOST_DIMS:
        return f"more than {MOST_DIMS} dimensions that cannot be merged"
    return _fits(x)


def fits_rows(gpu, x, dims):
    if walk(x, tuple(dims))[-1].x != 1:
        return "the last dimension of the result is not contiguous in x"
    return fits_any(gpu, x, dims)


def fits_tiles(gpu, x, dims):
    t = tiles(x, tuple(dims))
    if t is None:
        return "dims does not transpose matrices"
    if _outer(t) > MAX_GRID_Y * MAX_GRID_Y:
        return "too many matrices for a grid"
    return _fits(x)


def fits_swizzled(gpu, x, dims):
    reason = fits_tiles(gpu, x, dims)
    if reason:
        return reason
    t, width = tiles(x, tuple(dims)), 16 // x.itemsize
    if x.align < 16 or any(s % width for s in _between(t)):
        return "its 16-byte vectors are not aligned"
    return None


def _between(t):
    """The sizes and strides that separate the vectors of a tile, in elements."""
    return (t.row.size, t.column.size, t.row.x, t.column.y, *(s for d in t.outer for s in d[1:]))


def _outer(t) -> int:
    return math.prod(d.size for d in t.outer)


def width(x, dims) -> int:
    """Elements per access of the rows rung: at most 16 bytes."""
    *outer, row = walk(x, tuple(dims))
    strides = (s for d in outer for s in d[1:])
    return gcd(16 // x.itemsize, x.align // x.itemsize, row.size, *strides)


def blocks_of(count: int, block: int) -> tuple[int, int, int]:
    """A grid with one thread for each of `count`."""
    blocks = cdiv(count, block)
    down = cdiv(blocks, MAX_GRID)
    return cdiv(blocks, down), down, 1


def order(gpu, x, dims):
    """The first that supports the call: rows that stay contiguous, 16-byte tiles, other tiles."""
    return "cuda_rows", "cuda_swizzled", "cuda_padded"


def bucket(x, dims):
    """Key of a call in the tuned table: bytes per element, kind of copy, size."""
    if walk(x, tuple(dims))[-1].x == 1:
        side = "rows"
    else:
        side = "tiles" if tiles(x, tuple(dims)) else "strided"
    return f"{kind(x.dtype)}/{side}/{log2(x.numel())}"
