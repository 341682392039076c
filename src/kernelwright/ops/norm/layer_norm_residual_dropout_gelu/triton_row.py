"""A row in registers from the mean to the gelu; no intermediate result is written.

Idea: a program loads its row (or several short ones) and its residual once, reduces, generates the
random words where they are used and applies the rest. In the backward each of a fixed number of
programs iterates over its rows, recomputes them, and keeps its part of gweight and gbias in
registers; a second kernel adds the parts in a fixed order: deterministic.
Traffic: forward: x and residual read once, y written once; backward: gy, x and residual read once,
gx and gresidual written once, and partial sums of programs x columns.
Compared with `native`: that rung reads and writes one tensor per operator.
Limit: a row must fit in a program's registers, in the backward six arrays of its size.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f32, f64, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.ops._triton.centered import rest_of_mean
from kernelwright.ops._triton.dropout import tile_factors
from kernelwright.ops._triton.math import gelu_erf, gelu_erf_slope, gelu_tanh, gelu_tanh_slope
from kernelwright.ops._triton.parts import add_parts

from .call import OCTET, Call


@triton.jit
def chain_fwd_row(
    x_ptr, r_ptr, w_ptr, b_ptr, seed_ptr, y_ptr, mean_ptr, rstd_ptr,
    n_rows, n_cols, x_stride, r_stride, p, eps,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr, TANH: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < n_rows) & (col < n_cols)
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + row * r_stride + col, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1, keep_dims=True) / n_cols
    x = tl.where(col < n_cols, x - mean, 0.0)
    squares = tl.sum(x * x, axis=1, keep_dims=True)
    rest, squares = rest_of_mean(tl.sum(x, axis=1, keep_dims=True), squares, n_cols)
    x -= rest
    rstd = tl.rsqrt(squares / n_cols + eps)
    tl.store(mean_ptr + row, mean + rest, mask=row < n_rows)
    tl.store(rstd_ptr + row, rstd, mask=row < n_rows)
    s = x * rstd
    if WEIGHT:
        s *= tl.load(w_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    if BIAS:
        s += tl.load(b_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    s += r
    if DROP:
        s *= tile_factors(seed_ptr, seed_ptr, p, row, 0, n_cols, inside, 1, WHOLE, COLS)
    if TANH:
        y = gelu_tanh(s)
    else:
        y = gelu_erf(s, dtype)
    tl.store(y_ptr + row * n_cols + col, y.to(dtype), mask=inside)


@triton.jit
def chain_bwd_row(
    gy_ptr, x_ptr, r_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, seed_ptr,
    gx_ptr, gr_ptr, gw_ptr, gb_ptr,
    n_rows, n_cols, gy_stride, x_stride, r_stride, p,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, DROP: tl.constexpr, TANH: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, COLS)[None, :]
    dtype: tl.constexpr = gx_ptr.dtype.element_ty
    if WEIGHT:
        w = tl.load(w_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        gw = tl.zeros((ROWS, COLS), tl.float32)
    if BIAS:
        b = tl.load(b_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        gb = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(program * ROWS, n_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < n_rows) & (col < n_cols)
        g = tl.load(gy_ptr + row * gy_stride + col, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(r_ptr + row * r_stride + col, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        xhat = (x - tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)) * rstd
        normal = xhat
        if WEIGHT:
            normal *= w
        if BIAS:
            normal += b
        s += normal
        if DROP:
            f = tile_factors(seed_ptr, seed_ptr, p, row, 0, n_cols, inside, 1, WHOLE, COLS)
            s *= f
            g *= f
        # float32's slope: the differences below would amplify the error of a 16-bit one
        if TANH:
            g *= gelu_tanh_slope(s, tl.float32)
        else:
            g *= gelu_erf_slope(s, tl.float32)
        g = tl.where(inside, g, 0.0)
        tl.store(gr_ptr + row * n_cols + col, g.to(gr_ptr.dtype.element_ty), mask=inside)
        xhat = tl.where(inside, xhat, 0.0)
        if WEIGHT:
            gw += g * xhat
        if BIAS:
            gb += g
        if WEIGHT:
            g *= w
        gx = g - xhat * (tl.sum(g * xhat, axis=1, keep_dims=True) / n_cols)
        gx = (gx - tl.sum(g, axis=1, keep_dims=True) / n_cols) * rstd
        tl.store(gx_ptr + row * n_cols + col, gx.to(dtype), mask=inside)
    if WEIGHT:
        part = tl.sum(gw, axis=0, keep_dims=True)
        tl.store(gw_ptr + program * n_cols + col, part, mask=col < n_cols)
    if BIAS:
        part = tl.sum(gb, axis=0, keep_dims=True)
        tl.store(gb_ptr + program * n_cols + col, part, mask=col < n_cols)


def plan(gpu, config, **args):
    c = Call(args)
    launch = Launch(
        _kernel(chain_fwd_row, config, c),
        grid=(cdiv(c.rows, _rows(config, c)), 1, 1),
        args=(*c.pointers, *map(i64, c.sizes), f64("p"), f32("eps")),
    )
    return Plan((launch,))


def plan_backward(gpu, config, **args):
    c = Call(args)
    parts = min(cdiv(c.rows, _rows(config, c)), gpu.sms * config["programs"])
    walk = Launch(
        _kernel(chain_bwd_row, config, c),
        grid=(parts, 1, 1),
        args=(*c.pointers, *map(i64, c.sizes), f64("p")),
    )
    sums = (
        Launch(
            TritonKernel(add_parts, {"PARTS": 16, "COLS": 64}),
            grid=(cdiv(c.cols, 64), 1, 1),
            args=(f"{name}_parts", f"g{name}", i64(parts), i64(c.cols)),
        )
        for name in c.parameters
    )
    spec = TensorSpec.contiguous((parts, c.cols), torch.float32)
    return Plan((walk, *sums), {f"{name}_parts": Scratch(spec) for name in c.parameters})


def _rows(config, c):
    """Rows of a program's tile: one, or as many short ones as fill it."""
    return max(1, config["tile"] // next_power_of_2(c.cols))


def _kernel(fn, config, c):
    rows, cols = _rows(config, c), max(OCTET, next_power_of_2(c.cols))
    flags = {"WEIGHT": c.weight, "BIAS": c.bias, "DROP": c.drop, "TANH": c.tanh}
    tile = {"WHOLE": c.cols % OCTET == 0, "ROWS": rows, "COLS": cols}
    warps = min(32, max(1, rows * cols // (32 * config["items"])))
    return TritonKernel(fn, {**flags, **tile}, num_warps=warps)
