"""A tile of rows and columns per program; the bias gradient from one partial row per program.

Idea: a program loads its columns of the bias once and iterates over its rows. In the backward it
accumulates the gradient of x in registers and writes one partial row; a second kernel adds the
partial rows in a fixed order: deterministic.
Traffic: x read once, y written once; backward: gy and x read, gx written once, and one partial row
per program, about a hundredth of that. PyTorch writes and reads the sum, and reads gx again.
Compared with `compiled`: halves of one tensor are not copied, and column sums do not read gx again.
Limit: rows that are not multiples of 16 bytes are loaded element by element.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv, shares
from kernelwright.ops._triton.math import gelu_erf, gelu_erf_slope, gelu_tanh, gelu_tanh_slope

from .tiling import rows_of


@triton.jit
def bias_gelu_fwd_rows(
    x_ptr, bias_ptr, y_ptr, n_rows, n_cols, stride, share,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    begin = tl.program_id(1).to(tl.int64) * share
    end = tl.minimum(begin + share, n_rows)
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    bias = tl.load(bias_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    for first in range(begin, end, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < end) & (col < n_cols)
        x = tl.load(x_ptr + row * stride + col, mask=inside, other=0.0).to(tl.float32) + bias
        if TANH:
            y = gelu_tanh(x)
        else:
            y = gelu_erf(x, dtype)
        tl.store(y_ptr + row * n_cols + col, y.to(dtype), mask=inside)


@triton.jit
def bias_gelu_bwd_rows(
    gy_ptr, x_ptr, bias_ptr, gx_ptr, part_ptr, n_rows, n_cols, gy_stride, x_stride, share,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    begin = tl.program_id(1).to(tl.int64) * share
    end = tl.minimum(begin + share, n_rows)
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    bias = tl.load(bias_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(begin, end, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = (row < end) & (col < n_cols)
        gy = tl.load(gy_ptr + row * gy_stride + col, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32) + bias
        if TANH:
            gx = gy * gelu_tanh_slope(x, dtype)
        else:
            gx = gy * gelu_erf_slope(x, dtype)
        tl.store(gx_ptr + row * n_cols + col, gx.to(dtype), mask=inside)
        total += tl.where(inside, gx, 0.0)
    part = tl.sum(total, axis=0, keep_dims=True)
    tl.store(part_ptr + tl.program_id(1).to(tl.int64) * n_cols + col, part, mask=col < n_cols)


@triton.jit
def bias_gelu_bwd_parts(
    part_ptr, gbias_ptr, n_parts, n_cols, PARTS: tl.constexpr, COLS: tl.constexpr
):
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((PARTS, COLS), tl.float32)
    for first in range(0, n_parts, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        inside = (part < n_parts) & (col < n_cols)
        total += tl.load(part_ptr + part * n_cols + col, mask=inside, other=0.0)
    gbias = tl.sum(total, axis=0, keep_dims=True)
    tl.store(gbias_ptr + col, gbias.to(gbias_ptr.dtype.element_ty), mask=col < n_cols)


def plan(gpu, config, x, bias, approximate):
    rows, cols, stride = rows_of(x)
    strips = cdiv(cols, config["cols"])
    programs, share = shares(rows, strips, config["programs"] * gpu.sms)
    launch = Launch(
        _kernel(bias_gelu_fwd_rows, config, approximate),
        grid=(strips, programs, 1),
        args=("x", "bias", "y", i64(rows), i64(cols), i64(stride), i64(share)),
    )
    return Plan((launch,))


def plan_backward(gpu, config, gy, x, bias, approximate):
    rows, cols, x_stride = rows_of(x)
    strips = cdiv(cols, config["cols"])
    parts, share = shares(rows, strips, config["programs"] * gpu.sms)
    sizes = map(i64, (rows, cols, rows_of(gy)[2], x_stride, share))
    walk = Launch(
        _kernel(bias_gelu_bwd_rows, config, approximate),
        grid=(strips, parts, 1),
        args=("gy", "x", "bias", "gx", "part", *sizes),
    )
    add = Launch(
        TritonKernel(bias_gelu_bwd_parts, {"PARTS": 16, "COLS": 64}),
        grid=(cdiv(cols, 64), 1, 1),
        args=("part", "gbias", i64(parts), i64(cols)),
    )
    part = TensorSpec.contiguous((parts, cols), torch.float32)
    return Plan((walk, add), {"part": Scratch(part)})


def _kernel(fn, config, approximate):
    tile = {"ROWS": config["rows"], "COLS": config["cols"]}
    return TritonKernel(fn, {"TANH": approximate == "tanh", **tile}, num_warps=config["num_warps"])
