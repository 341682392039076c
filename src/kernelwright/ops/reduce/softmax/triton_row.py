"""One row in registers.

Idea: a program loads a whole row (or several short ones) once and computes everything in registers.
Traffic: x read once, y written once: the minimum.
Compared with `triton_online`: one read instead of two.
Limit: a row must fit in a program's registers, 32 Ki elements with 32 warps; because rows are
padded to a power of two, up to half of the lanes are idle.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.ops._triton.math import exp

from .tiling import rows_of


@triton.jit
def softmax_fwd_row(x_ptr, y_ptr, n_rows, n_cols, x_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < n_rows) & (col < n_cols)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=float("-inf")).to(tl.float32)
    e = exp(x - tl.max(x, axis=1, keep_dims=True))
    y = e / tl.sum(e, axis=1, keep_dims=True)
    tl.store(y_ptr + row * n_cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_bwd_row(
    gy_ptr,
    y_ptr,
    gx_ptr,
    n_rows,
    n_cols,
    gy_stride,
    y_stride,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < n_rows) & (col < n_cols)
    gy = tl.load(gy_ptr + row * gy_stride + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + col, mask=inside, other=0.0).to(tl.float32)
    gx = y * (gy - tl.sum(gy * y, axis=1, keep_dims=True))
    tl.store(gx_ptr + row * n_cols + col, gx.to(gx_ptr.dtype.element_ty), mask=inside)


def plan(gpu, config, x, dim):
    return _plan(softmax_fwd_row, config, "y", x=x)


def plan_backward(gpu, config, gy, y, dim):
    return _plan(softmax_bwd_row, config, "gx", gy=gy, y=y)


def _plan(kernel, config, out, **ins):
    r = rows_of(*ins.values())
    cols = next_power_of_2(r.cols)
    rows = max(1, config["tile"] // cols)
    warps = min(32, max(1, rows * cols // (32 * config["items"])))
    launch = Launch(
        TritonKernel(kernel, {"ROWS": rows, "COLS": cols}, num_warps=warps),
        grid=(cdiv(r.rows, rows), 1, 1),
        args=(*ins, out, i64(r.rows), i64(r.cols), *map(i64, r.strides)),
    )
    return Plan((launch,))
