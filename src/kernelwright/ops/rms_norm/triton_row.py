"""One row in registers; the weight's gradient from one partial sum a program.

Idea: a program loads its row (or a few short ones) once. In the backward each of a fixed number
of programs walks over its share of the rows and keeps its part of gweight in registers; a second
kernel adds the parts in a fixed order, so the result has the same bits every time, which
atomics would not give.
Traffic: forward x read, y written once; backward gy, x read, gx written once, and parts of
programs x columns, about a hundredth of that. `manual` reads and writes x once an operation.
Limit: a row must fit a program's registers, four arrays of it in the backward.
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
    f32,
    i64,
    rows_view,
)
from kernelwright.contract.arithmetic import cdiv, next_power_of_2


@triton.jit
def rms_norm_fwd_row(
    x_ptr, y_ptr, rstd_ptr, n_rows, n_cols, x_stride, eps, w_ptr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < n_rows) & (col < n_cols)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / n_cols + eps)
    tl.store(rstd_ptr + row, rstd, mask=row < n_rows)
    y = x * rstd
    if w_ptr is not None:
        y *= tl.load(w_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * n_cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_bwd_row(
    gy_ptr, x_ptr, rstd_ptr, gx_ptr, n_rows, n_cols, gy_stride, x_stride, w_ptr, part_ptr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, COLS)[None, :]
    if w_ptr is not None:
        w = tl.load(w_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        gw = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(program * ROWS, n_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < n_rows) & (col < n_cols)
        g = tl.load(gy_ptr + row * gy_stride + col, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        xhat = x * rstd
        if w_ptr is not None:
            gw += g * xhat
            g *= w
        mean = tl.sum(g * xhat, axis=1, keep_dims=True) / n_cols
        gx = rstd * (g - xhat * mean)
        tl.store(gx_ptr + row * n_cols + col, gx.to(gx_ptr.dtype.element_ty), mask=inside)
    if w_ptr is not None:
        part = tl.sum(gw, axis=0, keep_dims=True)
        tl.store(part_ptr + program * n_cols + col, part, mask=col < n_cols)


@triton.jit
def rms_norm_bwd_reduce(part_ptr, gw_ptr, n_parts, n_cols, PARTS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((PARTS, COLS), tl.float32)
    for first in range(0, n_parts, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        inside = (part < n_parts) & (col < n_cols)
        total += tl.load(part_ptr + part * n_cols + col, mask=inside, other=0.0)
    gw = tl.sum(total, axis=0, keep_dims=True)
    tl.store(gw_ptr + col, gw.to(gw_ptr.dtype.element_ty), mask=col < n_cols)


def plan(gpu, config, x, weight, eps):
    n_rows, n_cols, x_stride = rows_view(x.shape, x.strides)
    args = ("x", "y", "rstd", i64(n_rows), i64(n_cols), i64(x_stride), f32("eps"))
    launch = Launch(
        _kernel(rms_norm_fwd_row, config, n_cols, {} if weight else {"w_ptr": None}),
        grid=(cdiv(n_rows, _rows(config, n_cols)), 1, 1),
        args=(*args, "weight") if weight else args,
    )
    return Plan((launch,))


def plan_backward(gpu, config, gy, x, weight, rstd):
    n_rows, n_cols, gy_stride = rows_view(gy.shape, gy.strides)
    x_stride = rows_view(x.shape, x.strides)[2]
    programs = min(cdiv(n_rows, _rows(config, n_cols)), gpu.sms * config["programs"])
    args = ("gy", "x", "rstd", "gx", i64(n_rows), i64(n_cols), i64(gy_stride), i64(x_stride))
    absent = {} if weight else {"w_ptr": None, "part_ptr": None}
    walk = Launch(
        _kernel(rms_norm_bwd_row, config, n_cols, absent),
        grid=(programs, 1, 1),
        args=(*args, "weight", "part") if weight else args,
    )
    if not weight:
        return Plan((walk,))
    reduce = Launch(
        TritonKernel(rms_norm_bwd_reduce, {"PARTS": 16, "COLS": 64}),
        grid=(cdiv(n_cols, 64), 1, 1),
        args=("part", "gweight", i64(programs), i64(n_cols)),
    )
    part = TensorSpec.contiguous((programs, n_cols), torch.float32)
    return Plan((walk, reduce), {"part": Scratch(part)})


def _rows(config, n_cols):
    """Rows of a program's tile: one, or as many short ones as fill it."""
    return max(1, config["tile"] // next_power_of_2(n_cols))


def _kernel(fn, config, n_cols, absent):
    rows, cols = _rows(config, n_cols), next_power_of_2(n_cols)
    warps = min(32, max(1, rows * cols // (32 * config["items"])))
    return TritonKernel(fn, {"ROWS": rows, "COLS": cols, **absent}, num_warps=warps)
