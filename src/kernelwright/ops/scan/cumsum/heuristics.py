"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind

from .spec import EVERY
from .tiling import columns_of, rows_of

MAX_GRID, MAX_GRID_Y = 2**31 - 1, 65535
DTYPES = (*EVERY, torch.int64)

THREADS = ({"block": 128},)
BLOCKS = ({"block": 256}, {"block": 512})
WARPS = ({"block": 128}, {"block": 256})
# vecs: 16-byte vectors per thread
TILES = (
    {"block": 256, "vecs": 4},
    {"block": 256, "vecs": 8},
    {"block": 128, "vecs": 4},
)
# a state of two doubles, plus factors
FACTOR_TILES = ({"block": 256, "vecs": 1}, {"block": 256, "vecs": 2})
LONG = 2**16  # elements of a row that one block sums
TRITON = ({"tile": 2048, "num_warps": 4}, {"tile": 4096, "num_warps": 8})
# rows of threads, and rows of the tensor per thread
COLUMNS = ({"down": 8, "each": 8}, {"down": 16, "each": 8}, {"down": 32, "each": 4})


def _main(tensors):
    return tensors["gy"] if "gy" in tensors else tensors["x"]


def fits_rows(gpu, dim, starts=None, exclusive=False, reverse=False, **tensors):
    """Requirements of every rung over the last dimension."""
    x = _main(tensors)
    if x.dtype not in DTYPES:
        return f"{x.dtype} is not one of {', '.join(map(kind, DTYPES))}"
    if dim != -1:
        return f"dim {dim} is not the last"
    smallest = 1024  # elements of the smallest tile, if a row has several tiles
    r = rows_of(x)
    if r.rows * cdiv(r.n, smallest) > MAX_GRID:
        return f"{x.numel()} elements in {r.rows} rows need more blocks than a grid has"
    return None


def fits_plain(gpu, dim, starts=None, exclusive=False, reverse=False, **tensors):
    """Requirements of the teaching steps: running sums of whole rows."""
    if starts is not None:
        return "starts: segments are not supported"
    return fits_rows(gpu, dim, **tensors)


def fits_columns(gpu, dim, starts=None, exclusive=False, reverse=False, **tensors):
    x = _main(tensors)
    if x.dtype not in DTYPES:
        return f"{x.dtype} is not one of {', '.join(map(kind, DTYPES))}"
    if dim == -1:
        return "dim is the last dimension"
    for t in (x, starts):
        if t is not None and dim < -2 and rows_of(t).strides[0] != t.shape[-1]:
            return "an input has gaps between its rows"
    if columns_of(x, dim).outer > MAX_GRID_Y:
        return f"the dimensions before the scanned one have more than {MAX_GRID_Y} elements"
    return None


def choose_tile(gpu, dim, starts=None, exclusive=False, reverse=False, **tensors):
    """Large tiles if they fill the GPU several times: a block that waits for others has as many
    bytes in flight as fit in registers, and 16-bit types need twice the registers."""
    x = _main(tensors)
    if x.nbytes < 64 * 2**20:
        return TILES[2]
    return TILES[0] if starts is not None or x.itemsize == 2 else TILES[1]


def choose_block(gpu, dim, starts=None, exclusive=False, reverse=False, **tensors):
    return TILES[2] if rows_of(_main(tensors)).n <= 4096 else TILES[0]


def order(gpu, dim, starts=None, exclusive=False, reverse=False, **tensors):
    """For the last dimension in the same order at each call; cuda_lookback is faster without."""
    if dim != -1:
        return ("cuda_columns",)
    r = rows_of(_main(tensors))
    rungs = "cuda_block", "cuda_tree"
    return rungs if r.n <= LONG and r.rows >= gpu.sms else rungs[::-1]


def order_product(gpu, dim, **tensors):
    """Not a single long row, of which PyTorch's kernel is faster."""
    if dim != -1:
        return ("cuda_columns",)
    return ("cuda_block", "cuda_tree") if rows_of(_main(tensors)).n <= LONG else ()


def order_product_backward(gpu, dim, **tensors):
    """PyTorch's consists of many kernels."""
    if dim != -1:
        return ()
    rungs = "cuda_block", "cuda_tree"
    return rungs if rows_of(_main(tensors)).n <= LONG else rungs[::-1]


def bucket(dim, starts=None, exclusive=False, reverse=False, **tensors):
    """Key of a call in the tuned table: dtype, row length and number of rows by powers of two."""
    x = _main(tensors)
    n = x.shape[dim] if x.ndim else 1
    rows = x.numel() // max(n, 1)
    flags = "" if starts is None else "/segments"
    side = "" if dim == -1 else "/columns"
    return f"{kind(x.dtype)}{side}{flags}/{next_power_of_2(n)}/{next_power_of_2(rows)}"
