"""One row in registers; gradients of weight and bias from one partial sum per program.

Idea: a program loads its row (or several short ones) once. If rows are contiguous, their length is
a compile-time constant: no masks, and constant addresses. In the backward each of a fixed number of
programs iterates over its rows and keeps its part of gweight and gbias in registers; a second
kernel adds the parts in a fixed order: deterministic, unlike atomics.
Traffic: forward: x read once, y written once; backward: gy and x read once, gx written once, and
partial sums of programs x columns, about a hundredth of that.
Compared with `manual`: that rung reads and writes x once per operation.
Limit: a row must fit in a program's registers, in the backward four arrays of its size.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.ops._triton.centered import rest_of_mean
from kernelwright.ops._triton.masks import below
from kernelwright.ops._triton.parts import add_parts

from .tiling import BackwardCall, Call


@triton.jit
def norm_fwd_row(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, h_ptr, mean_ptr, rstd_ptr,
    n_rows, n_cols, x_stride, r_stride, eps, offset,
    CENTER: tl.constexpr, ADD: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DENSE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    if DENSE:  # offsets in the tile are constants, and there are no rows past its end
        n_cols, x_stride, r_stride = DENSE, DENSE, DENSE
    live = below(first + row, n_rows, DENSE > 0)
    in_row = below(col, n_cols, DENSE == COLS)
    inside = live & in_row
    x_ptr += first * x_stride
    x = tl.load(x_ptr + (row * x_stride + col), mask=inside, other=0.0).to(tl.float32)
    if ADD:
        r_ptr += first * r_stride
        x += tl.load(r_ptr + (row * r_stride + col), mask=inside, other=0.0).to(tl.float32)
        h = x.to(h_ptr.dtype.element_ty)
        h_ptr += first * n_cols
        tl.store(h_ptr + (row * n_cols + col), h, mask=inside)
        x = h.to(tl.float32)
    if EARLY:  # the parameters are loaded together with the row
        w, b = parameters(w_ptr, b_ptr, col, in_row, WEIGHT, BIAS)
    if CENTER:
        mean = tl.sum(x, axis=1, keep_dims=True) / n_cols
        x = tl.where(in_row, x - mean, 0.0)
    squares = tl.sum(x * x, axis=1, keep_dims=True)
    if CENTER:
        rest, squares = rest_of_mean(tl.sum(x, axis=1, keep_dims=True), squares, n_cols)
        tl.store(mean_ptr + first + row, mean + rest, mask=live)
        x -= rest
    rstd = tl.rsqrt(squares / n_cols + eps)
    tl.store(rstd_ptr + first + row, rstd, mask=live)
    if not EARLY:  # too many parameters to hold them in registers until then
        w, b = parameters(w_ptr, b_ptr, col, in_row, WEIGHT, BIAS)
    y = x * rstd
    if WEIGHT:
        y *= w.to(tl.float32) + offset
    if BIAS:
        y += b.to(tl.float32)
    y_ptr += first * n_cols
    tl.store(y_ptr + (row * n_cols + col), y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def parameters(w_ptr, b_ptr, col, in_row, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    """Weight and bias of columns in their own dtypes; 0 if there is none."""
    w = tl.load(w_ptr + col, mask=in_row, other=0.0) if WEIGHT else 0
    b = tl.load(b_ptr + col, mask=in_row, other=0.0) if BIAS else 0
    return w, b


@triton.jit
def norm_bwd_row(
    gy_ptr, gh_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, gx_ptr, gw_ptr, gb_ptr,
    n_rows, n_cols, gy_stride, gh_stride, x_stride, offset,
    CENTER: tl.constexpr, ADD: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, COLS)[None, :]
    if WEIGHT:
        w = tl.load(w_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32) + offset
        gw = tl.zeros((ROWS, COLS), tl.float32)
    if BIAS:
        gb = tl.zeros((ROWS, COLS), tl.float32)
    # the loads of the next STAGES - 1 tiles to shared memory are in flight
    for first in tl.range(program * ROWS, n_rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < n_rows) & (col < n_cols)
        g = tl.load(gy_ptr + row * gy_stride + col, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        if CENTER:
            x -= tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)
        xhat = x * rstd
        if WEIGHT:
            gw += g * xhat
        if BIAS:
            gb += g
        if WEIGHT:
            g *= w
        gx = g - xhat * (tl.sum(g * xhat, axis=1, keep_dims=True) / n_cols)
        if CENTER:
            gx -= tl.sum(g, axis=1, keep_dims=True) / n_cols
        gx *= rstd
        if ADD:
            gx += tl.load(gh_ptr + row * gh_stride + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(gx_ptr + row * n_cols + col, gx.to(gx_ptr.dtype.element_ty), mask=inside)
    if WEIGHT:
        part = tl.sum(gw, axis=0, keep_dims=True)
        tl.store(gw_ptr + program * n_cols + col, part, mask=col < n_cols)
    if BIAS:
        part = tl.sum(gb, axis=0, keep_dims=True)
        tl.store(gb_ptr + program * n_cols + col, part, mask=col < n_cols)


@triton.jit
def norm_bwd_parts(
    part_ptr, other_part_ptr, sum_ptr, other_sum_ptr, n_parts, n_cols,
    PARTS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    if tl.program_id(1) == 0:
        add_parts(part_ptr, sum_ptr, n_parts, n_cols, PARTS, COLS)
    else:
        add_parts(other_part_ptr, other_sum_ptr, n_parts, n_cols, PARTS, COLS)


def plan(gpu, config, **args):
    c = Call(args)
    rows = _rows(config, c.cols)
    dense = c.cols if c.dense and c.rows % rows == 0 else 0
    held = config["items"] // rows * (c.weight + c.bias)  # parameters per thread
    launch = Launch(
        _kernel(norm_fwd_row, config, c, DENSE=dense, EARLY=held <= 16),
        grid=(cdiv(c.rows, rows), 1, 1),
        args=(*c.pointers, *c.numbers, f32("eps"), c.offset),
    )
    return Plan((launch,))


def plan_backward(gpu, config, **args):
    c = BackwardCall(args)
    programs = min(cdiv(c.rows, _rows(config, c.cols)), gpu.sms * config["programs"])
    walk = Launch(
        _kernel(norm_bwd_row, config, c, STAGES=config["stages"]),
        grid=(programs, 1, 1),
        args=(*c.pointers, *c.numbers, c.offset),
    )
    if not c.parameters:
        return Plan((walk,))
    add = Launch(
        TritonKernel(norm_bwd_parts, {"PARTS": 16, "COLS": 64}),
        grid=(cdiv(c.cols, 64), len(c.parameters), 1),
        args=(*c.parts_and_sums, i64(programs), i64(c.cols)),
    )
    return Plan((walk, add), c.scratch(programs))


def _rows(config, n_cols):
    """Rows of a program's tile: one, or as many short ones as fill it."""
    return max(1, config["tile"] // next_power_of_2(n_cols))


def _kernel(fn, config, c, **more):
    rows, cols = _rows(config, c.cols), next_power_of_2(c.cols)
    flags = {"CENTER": c.center, "ADD": c.add, "WEIGHT": c.weight, "BIAS": c.bias}
    warps = min(32, max(1, rows * cols // (32 * config["items"])))
    return TritonKernel(fn, {**flags, "ROWS": rows, "COLS": cols, **more}, num_warps=warps)
