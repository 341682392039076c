"""Elementwise functions that Triton rungs share, accurate enough for float32 results."""

import triton
import triton.language as tl


@triton.jit
def exp(x):
    """exp(x) within 2 ulp in float32, -inf and overflow included.

    tl.exp is ex2(x * log2 e) in one multiply, so its relative error grows with |x|: 60 ulp at
    -80. Splitting x into n ln 2 + r first keeps the argument of ex2 small.
    """
    n = tl.floor(x * 1.4426950408889634 + 0.5)
    n = tl.minimum(tl.maximum(n, -160.0), 160.0)
    r = tl.fma(n, -0.693145751953125, x)
    r = tl.fma(n, -1.42860677e-6, r)
    # 2^n in two factors: each is a normal number where the product is not
    half = tl.floor(n * 0.5)
    e = tl.exp2(r * 1.4426950408889634) * tl.exp2(half) * tl.exp2(n - half)
    return e
