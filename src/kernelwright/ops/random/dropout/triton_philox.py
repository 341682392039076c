"""The mask is computed where it is used, forward and backward.

Idea: a program generates four random words per counter, uses each twice, and interleaves them, so
that a thread owns eight adjacent elements and loads them together. With one Philox call per eight
elements, the integer work of some 50 instructions per call fits in the issue slots that a copy
leaves free; with one call per element it would not.
Traffic: x read once, y written once, backward the same.
Compared with `native`: no words in memory. F.dropout also writes one byte of mask per element and
reads it again.
Limit: bandwidth. A thread loads four float32 at once, so words go through shared memory there.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f64, i64, rows_view
from kernelwright.contract.arithmetic import cdiv

from .call import OCTET


@triton.jit
def dropout_philox(
    x_ptr, seed_ptr, y_ptr, n, n_cols, x_stride, p, OCTETS: tl.constexpr, FLAT: tl.constexpr
):
    octet = tl.program_id(0).to(tl.int64) * OCTETS
    r0, r1, r2, r3 = tl.randint4x(tl.load(seed_ptr), octet + tl.arange(0, OCTETS))
    drawn = tl.interleave(tl.interleave(r0, r2), tl.interleave(r1, r3))
    words = tl.interleave(drawn, drawn << 16 | drawn >> 16)
    # 24-bit integers, as in _keep.py; p is float64, since 1 - p would lose precision near p = 1
    keep = (words >> 8).to(tl.int32) >= tl.ceil(p * 16777216.0).to(tl.int32)
    scale = tl.div_rn(1.0, (1.0 - p).to(tl.float32))
    i = octet * 8 + tl.arange(0, 8 * OCTETS)
    at = i if FLAT else i // n_cols * x_stride + i % n_cols
    x = tl.load(x_ptr + at, mask=i < n, other=0.0).to(tl.float32)
    # multiplied by 0 and not set to 0: NaN remains NaN, as in PyTorch
    y = x * tl.where(keep, scale, 0.0)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


def plan(gpu, config, x, seed, p):
    return _plan(config, "x", x, "y")


def plan_backward(gpu, config, gy, seed, p):
    return _plan(config, "gy", gy, "gx")


def _plan(config, name, t, out):
    n_rows, n_cols, stride = rows_view(t.shape, t.strides)
    n = n_rows * n_cols
    kernel = TritonKernel(
        dropout_philox,
        {"OCTETS": config["octets"], "FLAT": stride == n_cols},
        num_warps=config["num_warps"],
    )
    args = (name, "seed", out, i64(n), i64(n_cols), i64(stride), f64("p"))
    return Plan((Launch(kernel, (cdiv(n, OCTET * config["octets"]), 1, 1), args),))
