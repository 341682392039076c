"""Kernels for which triton's interpreter was wrong; imported after it has been activated."""

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import erf  # before the interpreter patches it
from triton.language.extra.libdevice import rsqrt


@triton.jit
def bfloat16_arithmetic(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, tl.where(x > 0.5, x * x, -x) + 1.0)


@triton.jit
def bfloat16_reductions(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr, tl.sum(x, 0))
    tl.store(z_ptr + i, tl.cumsum(x, 0))


@triton.jit
def unmasked_load(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < n)


@triton.jit
def unmasked_store(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n))


@triton.jit
def unmasked_atomic(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(y_ptr + i, tl.load(x_ptr + i, mask=i < n))


@triton.jit
def masked(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def sum_without_an_atomic(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0))


@triton.jit
def sum_by_atomics(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0))


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
def fma(x_ptr, z_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, tl.fma(x, x, tl.load(z_ptr + i)))


@triton.jit
def bfloat16_constant(y_ptr, N: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, N), tl.full((N,), 0.5, tl.bfloat16))


@triton.jit
def _plus_one(x):
    return x + 1.0


@triton.jit
def plus_two(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, _plus_one(_plus_one(tl.load(x_ptr + i))))


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


@triton.jit
def libdevice_one(x_ptr, y_ptr, FN: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, FN(tl.load(x_ptr + i)))


@triton.jit
def libdevice_more(a_ptr, b_ptr, c_ptr, d_ptr, y_ptr, FN: tl.constexpr, N: tl.constexpr,
                   COUNT: tl.constexpr):  # fmt: skip
    i = tl.arange(0, N)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    if COUNT == 2:
        y = FN(a, b)
    elif COUNT == 3:
        y = FN(a, b, tl.load(c_ptr + i))
    else:
        y = FN(a, b, tl.load(c_ptr + i), tl.load(d_ptr + i))
    tl.store(y_ptr + i, y)


@triton.jit
def libdevice_of_a_scalar(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    scale = rsqrt(tl.sum(x * x, 0) / N + 1e-6)
    tl.store(y_ptr + i, erf(x * scale) + libdevice.pow(x, 2))
