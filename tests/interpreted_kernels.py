"""Kernels on which triton's interpreter went wrong; imported once it is switched on."""

import triton
import triton.language as tl


@triton.jit
def bfloat16_arithmetic(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, tl.where(x > 0.5, x * x, -x) + 1.0)


@triton.jit
def cast(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(y_ptr.dtype.element_ty))


@triton.jit
def dot(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@triton.jit
def relu(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i), 0.0))


@triton.jit
def fma(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, tl.fma(x, x, -1.0))


@triton.autotune([triton.Config({"N": 16}), triton.Config({"N": 8})], key=[])
@triton.jit
def autotuned(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def scalars(out_ptr, a, n):
    tl.store(out_ptr, a.to(tl.float32))
    tl.store(out_ptr + 1, (n << 40).to(tl.float32))


@triton.jit
def scale_and_count(m_ptr, y_ptr, work_ptr, a, N: tl.constexpr):
    i = tl.arange(0, N)
    m = tl.load(m_ptr + i)
    count = tl.atomic_add(work_ptr, 1) + 1
    tl.store(y_ptr + i, a * m)
    tl.store(m_ptr + i, m + count)
    tl.store(work_ptr, 0)
