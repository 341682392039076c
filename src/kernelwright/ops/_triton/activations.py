"""sigmoid, silu, tanh and their slopes for Triton rungs, for results stored as `dtype`.

All of them use e^-|x|, which never overflows, so that the negative tail keeps its precision: in the
form 1 / (1 + e^-x), the result would be 0 from x = -88.8 on, where silu's float32 and bfloat16
results are still normal numbers.
"""

import triton
import triton.language as tl

from .math import exp


@triton.jit
def exp_minus_abs(x, dtype: tl.constexpr):
    """e^-|x|. tl.exp2 flushes results below 2^-126 to 0; this computes 2^16 times the result."""
    if dtype == tl.float32:
        e = exp(-tl.abs(x))
    else:
        e = tl.exp2(tl.fma(tl.abs(x), -1.4426950408889634, 16.0)) * 1.52587890625e-05
    return e


@triton.jit
def sigmoid(x, dtype: tl.constexpr):
    e = exp_minus_abs(x, dtype)
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def silu(x, dtype: tl.constexpr):
    """x sigmoid(x)"""
    e = exp_minus_abs(x, dtype)
    return x * tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def silu_and_slope(x, dtype: tl.constexpr):
    """silu(x) and its slope s (1 + x (1 - s)), where s = sigmoid(x). 1 - s is computed as
    sigmoid(-x), which does not cancel."""
    e = exp_minus_abs(x, dtype)
    r = 1.0 / (1.0 + e)
    s = tl.where(x < 0, e * r, r)
    rest = tl.where(x < 0, r, e * r)
    return x * s, s * tl.fma(x, rest, 1.0)


@triton.jit
def tanh(x, dtype: tl.constexpr):
    """tanh(x). 1 - 2 / (1 + e^2|x|) cancels near 0; there Lambert's continued fraction, x (945 +
    105 x^2 + x^4) / (945 + 420 x^2 + 15 x^4), is accurate to float32 precision."""
    xx = x * x
    near = x * tl.fma(xx, xx + 105.0, 945.0) / tl.fma(xx, tl.fma(xx, 15.0, 420.0), 945.0)
    e = exp_minus_abs(2.0 * x, dtype)
    far = 1.0 - 2.0 * e / (1.0 + e)
    return tl.where(xx < 0.3, near, tl.where(x < 0, -far, far))
