"""A row read twice, the second time from cache: rows of any length in few registers.

Idea: `triton_row` holds a row in registers from load to store, so few rows are in flight. Here a
program processes its row in blocks, first for the statistics, then for y, and holds one block at a
time, so that more programs fit on a multiprocessor. Their rows stay in L1 and L2, so that the
second read causes no DRAM traffic. torch.compile generates this for long rows. Each lane keeps mean
and squares of its elements (Welford); lanes are merged at the end.
Traffic: x read once, y written once, as long as the second read is served by the caches.
Compared with `triton_row`: more rows in flight, and rows of any length.
Limit: a row that does not fit in the caches is read from DRAM twice.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.ops._triton.centered import rest_of_mean
from kernelwright.ops._triton.masks import below

from .tiling import Call


@triton.jit
def norm_fwd_loop(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, h_ptr, mean_ptr, rstd_ptr,
    n_rows, n_cols, x_stride, r_stride, eps, offset,
    CENTER: tl.constexpr, ADD: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    BLOCK: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if DENSE:  # known at compile time, and so is the number of iterations
        n_cols = DENSE
    lane = tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    r_ptr += row * r_stride
    y_ptr += row * n_cols
    h_ptr += row * n_cols

    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    met = 0.0
    for first in range(0, n_cols, BLOCK):
        col = first + lane
        inside = below(col, n_cols, DENSE % BLOCK == 0 and DENSE > 0)
        h = block_of(x_ptr, r_ptr, col, inside, h_ptr.dtype.element_ty, ADD, "evict_last")
        if ADD:
            tl.store(h_ptr + col, h, mask=inside)
        x = h.to(tl.float32)
        if CENTER:
            met += 1.0
            distance = tl.where(inside, x - mean, 0.0)
            mean += distance * (1.0 / met)
            squares += distance * tl.where(inside, x - mean, 0.0)
        else:
            squares += x * x
    if CENTER:
        count = tl.maximum((n_cols - lane + BLOCK - 1) // BLOCK, 0).to(tl.float32)
        of_row = tl.sum(mean * count) / n_cols
        squares += count * (mean - of_row) * (mean - of_row)
    total = tl.sum(squares)
    if CENTER:
        rest, total = rest_of_mean(tl.sum((mean - of_row) * count), total, n_cols)
        of_row += rest
        tl.store(mean_ptr + row, of_row)
    rstd = tl.rsqrt(total / n_cols + eps)
    tl.store(rstd_ptr + row, rstd)

    for first in range(0, n_cols, BLOCK):
        col = first + lane
        inside = below(col, n_cols, DENSE % BLOCK == 0 and DENSE > 0)
        h = block_of(x_ptr, r_ptr, col, inside, h_ptr.dtype.element_ty, ADD, "evict_first")
        y = h.to(tl.float32)
        if CENTER:
            y -= of_row
        y *= rstd
        if WEIGHT:
            w = tl.load(w_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last")
            y *= w.to(tl.float32) + offset
        if BIAS:
            b = tl.load(b_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last")
            y += b.to(tl.float32)
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def block_of(
    x_ptr, r_ptr, col, inside,
    H: tl.constexpr, ADD: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """The elements that are normalized: x, or x + r, rounded to its type H."""
    h = tl.load(x_ptr + col, mask=inside, other=0.0, eviction_policy=EVICTION)
    if ADD:
        r = tl.load(r_ptr + col, mask=inside, other=0.0, eviction_policy=EVICTION)
        h = (h.to(tl.float32) + r.to(tl.float32)).to(H)
    return h


def plan(gpu, config, **args):
    c = Call(args)
    flags = {"CENTER": c.center, "ADD": c.add, "WEIGHT": c.weight, "BIAS": c.bias}
    block = min(config["block"], next_power_of_2(c.cols))
    warps = min(32, max(1, block // 256))
    dense = c.cols if c.dense else 0
    launch = Launch(
        TritonKernel(norm_fwd_loop, {**flags, "BLOCK": block, "DENSE": dense}, num_warps=warps),
        grid=(c.rows, 1, 1),
        args=(*c.pointers, *c.numbers, f32("eps"), c.offset),
    )
    return Plan((launch,))
