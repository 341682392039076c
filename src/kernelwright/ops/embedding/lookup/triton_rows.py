"""A few rows per program, one tile of them at a time.

Idea: forward, a program loads a few indices, then a slice of the rows that they select, and stores
it; programs iterate slice by slice over the table, so that repeated look-ups hit L2. The result has
an evict-first hint, the table (optionally) an evict-last hint. Backward, the first of the positions
of a tile that share a row adds all of them, and its sum is added to the gradient by atomics, in
float32; the gradient is zeroed before, and converted afterwards if it has 16 bits.
Traffic: forward: N rows read (from L2 if it holds them) and written; backward: gy read, and up to N
rows added in L2.
Compared with `compiled`: slices and cache hints; in the backward float32 sums for any dtype.
Limit: rows are padded to powers of two; with atomics the last bits differ between runs.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import (
    Launch,
    Plan,
    Scratch,
    TensorSpec,
    TritonKernel,
    i64,
    rows_view,
)
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.ops._triton.target import require

TILE = 64  # positions per program that adds
GRID_Y = 65_535
ZEROS = 4096  # elements per program that zeroes or converts


@triton.jit
def _indices(index_ptr, row, n, num_weights):
    """The indices of a tile (rows, 1), after a range check of each."""
    index = tl.load(index_ptr + row, mask=row < n, other=0).to(tl.int64)
    require(tl.min(((index >= 0) & (index < num_weights)).to(tl.int32)) > 0)
    return index


@triton.jit
def embedding_fwd_rows(
    w_ptr, index_ptr, y_ptr, n, n_cols, num_weights, w_stride,
    ROWS: tl.constexpr, COLS: tl.constexpr, POLICY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    index = _indices(index_ptr, row, n, num_weights)
    inside = (row < n) & (col < n_cols)
    x = tl.load(w_ptr + index * w_stride + col, mask=inside, eviction_policy=POLICY)
    tl.store(y_ptr + row * n_cols + col, x, mask=inside, eviction_policy="evict_first")


@triton.jit
def embedding_bwd_rows(
    gy_ptr, index_ptr, sum_ptr, n, n_cols, num_weights, gy_stride, padding,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * ROWS
    place, other = tl.arange(0, ROWS), tl.arange(0, ROWS)[None, :]
    row = start + place[:, None]
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    index = _indices(index_ptr, row, n, num_weights)
    index_of_other = tl.load(index_ptr + start + other, mask=start + other < n, other=-1)
    same = index == index_of_other.to(tl.int64)
    first = tl.min(tl.where(same, other, ROWS), axis=1) == place
    added = (row < n) & (index != padding) & first[:, None]
    at = tl.where(tl.min(added.to(tl.int32), axis=1) > 0, place, ROWS)
    sums = tl.zeros((ROWS, COLS), tl.float32)
    while tl.min(at, axis=0) < ROWS:
        inside = (at[:, None] < ROWS) & (col < n_cols)
        g = tl.load(gy_ptr + (start + at[:, None]) * gy_stride + col, mask=inside, other=0.0)
        sums += g.to(tl.float32)
        at = tl.min(tl.where(same & (other > at[:, None]), other, ROWS), axis=1)
    tl.atomic_add(sum_ptr + index * n_cols + col, sums, mask=added & (col < n_cols), sem="relaxed")


@triton.jit
def embedding_zero(sum_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(sum_ptr + i, tl.zeros((BLOCK,), tl.float32), mask=i < n)


@triton.jit
def embedding_narrow(sum_ptr, gw_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(sum_ptr + i, mask=i < n)
    tl.store(gw_ptr + i, x.to(gw_ptr.dtype.element_ty), mask=i < n)


def plan(gpu, config, weight, indices, num_weights, padding_idx=-1):
    cols = _cols(weight, config["slice"] // weight.itemsize)
    args = ("weight", "indices", "y", *_sizes(weight, indices, num_weights))
    policy = {"POLICY": "evict_last" if config["keep"] else ""}
    shape = (max(1, config["tile"] // cols), cols)
    return Plan((_tiles(embedding_fwd_rows, shape, policy, config, weight, indices, args),))


def plan_backward(gpu, config, gy, indices, num_weights, padding_idx=-1):
    count = num_weights * gy.shape[-1]
    whole = gy.dtype == torch.float32  # sums are added directly to the gradient
    sum_of = "gweight" if whole else "sums"
    args = ("gy", "indices", sum_of, *_sizes(gy, indices, num_weights), i64(padding_idx))
    zero = _flat(embedding_zero, (sum_of,), count)
    shape = (TILE, _cols(gy, config["tile"] // TILE))
    add = _tiles(embedding_bwd_rows, shape, {}, config, gy, indices, args)
    if whole:
        return Plan((zero, add))
    sums = TensorSpec.contiguous((num_weights, gy.shape[-1]), torch.float32)
    narrow = _flat(embedding_narrow, ("sums", "gweight"), count)
    return Plan((zero, add, narrow), {"sums": Scratch(sums)})


def _sizes(x, indices, num_weights):
    stride = rows_view(x.shape, x.stride())[2]
    return tuple(map(i64, (indices.numel(), x.shape[-1], num_weights, stride)))


def _cols(x, most: int) -> int:
    """Columns of a tile: more if a grid could otherwise not hold the tiles of a row."""
    wanted = max(most, next_power_of_2(cdiv(x.shape[-1], GRID_Y)))
    return min(next_power_of_2(x.shape[-1]), wanted)


def _tiles(fn, shape, policy, config, x, indices, args):
    rows, cols = shape
    constexprs = {"ROWS": rows, "COLS": cols, **policy}
    kernel = TritonKernel(fn, constexprs, num_warps=config["num_warps"])
    grid = (cdiv(indices.numel(), rows), cdiv(x.shape[-1], cols), 1)
    return Launch(kernel, grid, args)


def _flat(fn, tensors, count):
    kernel = TritonKernel(fn, {"BLOCK": ZEROS}, num_warps=8)
    return Launch(kernel, (cdiv(count, ZEROS), 1, 1), (*tensors, i64(count)))
