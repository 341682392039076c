"""One row in registers; gradients of weight and bias from one partial sum a program.

Idea: a program loads its row (or a few short ones) once. In the backward each of a fixed number
of programs walks over its share of the rows and keeps its part of gweight and gbias in registers;
a second kernel adds the parts in a fixed order, so the result has the same bits every time, which
atomics would not give.
Traffic: forward x read, y written once; backward gy, x read, gx written once, and parts of
programs x columns, about a hundredth of that. `manual` reads and writes x once an operation.
Limit: a row must fit a program's registers, four arrays of it in the backward.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

from .shape import BackwardCall, Call


@triton.jit
def norm_fwd_row(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, h_ptr, mean_ptr, rstd_ptr,
    n_rows, n_cols, x_stride, r_stride, eps, offset,
    CENTER: tl.constexpr, ADD: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < n_rows) & (col < n_cols)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(r_ptr + row * r_stride + col, mask=inside, other=0.0).to(tl.float32)
        h = x.to(h_ptr.dtype.element_ty)
        tl.store(h_ptr + row * n_cols + col, h, mask=inside)
        x = h.to(tl.float32)
    if CENTER:
        mean = tl.sum(x, axis=1, keep_dims=True) / n_cols
        tl.store(mean_ptr + row, mean, mask=row < n_rows)
        x = tl.where(col < n_cols, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / n_cols + eps)
    tl.store(rstd_ptr + row, rstd, mask=row < n_rows)
    y = x * rstd
    if WEIGHT:
        y *= tl.load(w_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32) + offset
    if BIAS:
        y += tl.load(b_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * n_cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    # the loads of the next STAGES - 1 tiles are on their way to shared memory
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
        _add_parts(part_ptr, sum_ptr, n_parts, n_cols, PARTS, COLS)
    else:
        _add_parts(other_part_ptr, other_sum_ptr, n_parts, n_cols, PARTS, COLS)


@triton.jit
def _add_parts(part_ptr, sum_ptr, n_parts, n_cols, PARTS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((PARTS, COLS), tl.float32)
    for first in range(0, n_parts, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        inside = (part < n_parts) & (col < n_cols)
        total += tl.load(part_ptr + part * n_cols + col, mask=inside, other=0.0)
    s = tl.sum(total, axis=0, keep_dims=True)
    tl.store(sum_ptr + col, s.to(sum_ptr.dtype.element_ty), mask=col < n_cols)


def plan(gpu, config, **args):
    c = Call(args)
    launch = Launch(
        _kernel(norm_fwd_row, config, c),
        grid=(cdiv(c.rows, _rows(config, c.cols)), 1, 1),
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
