"""Any dimension except the last.

Idea: the tensor is (outer, n, inner), and softmax runs along n. A program takes COLS adjacent
elements of `inner` and iterates over n in steps of ROWS, with a running maximum and sum per column
as in `triton_online`. Its loads run along `inner`, so they are coalesced.
Traffic: x read twice, y written once; the second read comes from L2 as long as n * COLS elements of
every running program fit in it.
Compared with a transposed copy and a rung over rows: two reads and two writes less.
Limit: the second read, and an `inner` that is shorter than a 32-byte sector.
"""

import math

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.ops._triton.math import exp

from .tiling import rows_of


@triton.jit
def softmax_fwd_columns(
    x_ptr, y_ptr, n, inner, x_stride, tiles, ROWS: tl.constexpr, COLS: tl.constexpr
):
    # x_stride is the step along n; without gaps it equals `inner`, as in y
    outer = tl.program_id(0).to(tl.int64) // tiles
    col = tl.program_id(0).to(tl.int64) % tiles * COLS + tl.arange(0, COLS)[None, :]
    x_ptr += outer * n * x_stride + col
    y_ptr += outer * n * inner + col
    top = tl.full([1, COLS], float("-inf"), tl.float32)
    total = tl.zeros([1, COLS], tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < n) & (col < inner)
        x = tl.load(x_ptr + row * x_stride, mask=inside, other=float("-inf")).to(tl.float32)
        higher = _max_nan(top, tl.reduce(x, 0, _max_nan, keep_dims=True))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * exp(top - base) + tl.sum(exp(x - base), axis=0, keep_dims=True)
        top = higher
    scale = 1.0 / total
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < n) & (col < inner)
        x = tl.load(x_ptr + row * x_stride, mask=inside, other=0.0).to(tl.float32)
        y = exp(x - top) * scale
        tl.store(y_ptr + row * inner, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _max_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_bwd_columns(
    gy_ptr,
    y_ptr,
    gx_ptr,
    n,
    inner,
    gy_stride,
    y_stride,
    tiles,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    outer = tl.program_id(0).to(tl.int64) // tiles
    col = tl.program_id(0).to(tl.int64) % tiles * COLS + tl.arange(0, COLS)[None, :]
    gy_ptr += outer * n * gy_stride + col
    y_ptr += outer * n * y_stride + col
    gx_ptr += outer * n * inner + col
    total = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < n) & (col < inner)
        gy = tl.load(gy_ptr + row * gy_stride, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride, mask=inside, other=0.0).to(tl.float32)
        total += gy * y
    dot = tl.sum(total, axis=0, keep_dims=True)
    for start in range(0, n, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < n) & (col < inner)
        gy = tl.load(gy_ptr + row * gy_stride, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride, mask=inside, other=0.0).to(tl.float32)
        gx = y * (gy - dot)
        tl.store(gx_ptr + row * inner, gx.to(gx_ptr.dtype.element_ty), mask=inside)


def plan(gpu, config, x, dim):
    return _plan(softmax_fwd_columns, config, "y", dim, x=x)


def plan_backward(gpu, config, gy, y, dim):
    return _plan(softmax_bwd_columns, config, "gx", dim, gy=gy, y=y)


def _plan(kernel, config, out, dim, **ins):
    shape = next(iter(ins.values())).shape
    n, inner = shape[dim], math.prod(shape[dim + 1 :])
    steps = [rows_of(t).strides[0] if dim == -2 else inner for t in ins.values()]
    # a tile has at most n rows; if n is smaller, the tile is made wider
    rows = min(config["tile"] // config["cols"], next_power_of_2(n))
    cols = min(config["tile"] // rows, next_power_of_2(inner))
    tiles = cdiv(inner, cols)
    launch = Launch(
        TritonKernel(kernel, {"ROWS": rows, "COLS": cols}, num_warps=config["warps"]),
        grid=(math.prod(shape[:dim]) * tiles, 1, 1),
        args=(*ins, out, i64(n), i64(inner), *map(i64, steps), i64(tiles)),
    )
    return Plan((launch,))
