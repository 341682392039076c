"""Some rows a program, a tile of them at a time.

Idea: forward, a program loads a few indices, then the tile of rows that they name, and stores it.
Backward, it loads a tile of gy and adds it to the gradient by atomics, in float32; what is added to
is zeroed before, and converted after where the gradient has 16 bits.
Traffic: forward N rows read (out of L2 where it holds them) and written; backward gy read, and its
rows added in L2.
Over `compiled`: one kernel, and in the backward float32 sums whatever the dtype.
Limit: rows are padded to powers of two; atomics give other last bits each time.
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

ZEROS = 4096  # elements of a program that zeroes or converts


@triton.jit
def _indices(index_ptr, row, n, num_weights):
    """The indices of a tile (rows, 1), each of them checked."""
    index = tl.load(index_ptr + row, mask=row < n, other=0).to(tl.int64)
    require(tl.min(((index >= 0) & (index < num_weights)).to(tl.int32)) > 0)
    return index


@triton.jit
def embedding_fwd_rows(
    w_ptr, index_ptr, y_ptr, n, n_cols, num_weights, w_stride,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    index = _indices(index_ptr, row, n, num_weights)
    inside = (row < n) & (col < n_cols)
    x = tl.load(w_ptr + index * w_stride + col, mask=inside)
    tl.store(y_ptr + row * n_cols + col, x, mask=inside)


@triton.jit
def embedding_bwd_rows(
    gy_ptr, index_ptr, sum_ptr, n, n_cols, num_weights, gy_stride, padding,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    index = _indices(index_ptr, row, n, num_weights)
    inside = (row < n) & (col < n_cols) & (index != padding)
    g = tl.load(gy_ptr + row * gy_stride + col, mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(sum_ptr + index * n_cols + col, g, mask=inside, sem="relaxed")


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
    args = ("weight", "indices", "y", *_sizes(weight, indices, num_weights))
    return Plan((_tiles(embedding_fwd_rows, config, weight, indices, args),))


def plan_backward(gpu, config, gy, indices, num_weights, padding_idx=-1):
    count = num_weights * gy.shape[-1]
    whole = gy.dtype == torch.float32  # the gradient itself is what is added to
    sum_of = "gweight" if whole else "sums"
    args = ("gy", "indices", sum_of, *_sizes(gy, indices, num_weights), i64(padding_idx))
    zero = _flat(embedding_zero, (sum_of,), count)
    add = _tiles(embedding_bwd_rows, config, gy, indices, args)
    if whole:
        return Plan((zero, add))
    sums = TensorSpec.contiguous((num_weights, gy.shape[-1]), torch.float32)
    narrow = _flat(embedding_narrow, ("sums", "gweight"), count)
    return Plan((zero, add, narrow), {"sums": Scratch(sums)})


def _sizes(x, indices, num_weights):
    stride = rows_view(x.shape, x.stride())[2]
    return tuple(map(i64, (indices.numel(), x.shape[-1], num_weights, stride)))


def _tiles(fn, config, x, indices, args):
    cols = min(next_power_of_2(x.shape[-1]), 1024)
    rows = max(1, config["tile"] // cols)
    kernel = TritonKernel(fn, {"ROWS": rows, "COLS": cols}, num_warps=config["num_warps"])
    grid = (cdiv(indices.numel(), rows), cdiv(x.shape[-1], cols), 1)
    return Launch(kernel, grid, args)


def _flat(fn, tensors, count):
    kernel = TritonKernel(fn, {"BLOCK": ZEROS}, num_warps=8)
    return Launch(kernel, (cdiv(count, ZEROS), 1, 1), (*tensors, i64(count)))
