"""Rows of any length, in two reads.

Idea: a program iterates over its row with a running maximum and sum for each of BLOCK columns. When
a maximum rises, its sum is rescaled (Milakov and Gimelshein 2018), so that both take one read
together. A second read writes the result.
Traffic: x read twice, y written once. The second read is served by L2 if the rows in flight fit in
it.
Compared with `manual`: that rung reads and writes a row five times.
Limit: the second read. `triton_row` keeps the row in registers instead, up to their capacity.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.ops._triton.math import exp

from .tiling import rows_of


@triton.jit
def softmax_fwd_online(x_ptr, y_ptr, n_cols, x_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * n_cols
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < n_cols, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL)
        # a column that has seen only -inf has no reference yet: with 0 its sum remains 0, not NaN
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * exp(top - base) + exp(x - base)
        top = higher
    m = tl.reduce(top, 0, _max_nan)
    base = tl.where(m == float("-inf"), 0.0, m)
    scale = 1.0 / tl.sum(total * exp(top - base), axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < n_cols).to(tl.float32)
        y = exp(x - m) * scale
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def _max_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_bwd_online(gy_ptr, y_ptr, gx_ptr, n_cols, gy_stride, y_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    gy_ptr += row * gy_stride
    y_ptr += row * y_stride
    gx_ptr += row * n_cols
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        gy = tl.load(gy_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        total += gy * y
    dot = tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        gy = tl.load(gy_ptr + col, mask=col < n_cols).to(tl.float32)
        y = tl.load(y_ptr + col, mask=col < n_cols).to(tl.float32)
        gx = y * (gy - dot)
        tl.store(gx_ptr + col, gx.to(gx_ptr.dtype.element_ty), mask=col < n_cols)


def plan(gpu, config, x, dim):
    return _plan(softmax_fwd_online, config, "y", x=x)


def plan_backward(gpu, config, gy, y, dim):
    return _plan(softmax_bwd_online, config, "gx", gy=gy, y=y)


def _plan(kernel, config, out, **ins):
    r = rows_of(*ins.values())
    block = min(config["block"], next_power_of_2(r.cols))
    warps = max(1, min(config["warps"], block // 256))  # eight elements per thread: 16-byte loads
    launch = Launch(
        TritonKernel(kernel, {"BLOCK": block}, num_warps=warps),
        grid=(r.rows, 1, 1),
        args=(*ins, out, i64(r.cols), *map(i64, r.strides)),
    )
    return Plan((launch,))
