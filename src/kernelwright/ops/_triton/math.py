"""Elementwise functions that Triton rungs share, for results stored as float32 or 16-bit types.

The interpreter and the compiler run the same lines, but differ in two ways: compiled, `tl.exp2` is
one instruction that flushes results below 2^-126 to zero, and the compiler fuses multiplications
with additions where the interpreter does not. The functions are correct in both cases.
"""

import triton
import triton.language as tl


@triton.jit
def exp(x):
    """exp(x) within 2 ulp in float32, also for infinities, NaN, overflow and subnormal results.

    tl.exp computes 2^(x log2 e) with one multiplication, so its relative error grows with |x|: 60
    ulp at -80. Here x = n ln 2 + r, where n is limited to the exponents of normal numbers and r
    takes the rest of the range.
    """
    z = tl.minimum(tl.maximum(x * 1.4426950408889634, -126.0), 126.0)
    shifted = z + 12582912.0  # 1.5 * 2^23: the sum's low bits are the nearest integer n
    n = shifted - 12582912.0
    r = tl.fma(n, -0.693145751953125, x)  # ln 2 in two parts; the first has 15 bits
    r = tl.fma(n, -1.42860677e-6, r)
    power = (shifted.to(tl.int32, bitcast=True) << 23) + 0x3F800000  # the bits of 2^n
    return tl.exp2(r * 1.4426950408889634) * power.to(tl.float32, bitcast=True)


@triton.jit
def polynomial(x, C: tl.constexpr, N: tl.constexpr):
    """C[0] x^N + ... + C[N] by Horner's method."""
    p = tl.fma(x, C[0], C[1])
    for i in tl.static_range(2, N + 1):
        p = tl.fma(p, x, C[i])
    return p


# The tables that `python -m kernelwright.ops.elementwise.gelu.fit` prints, highest power first.
LOG2_TAIL_F16 = tl.constexpr((
    -1.82874328e-06, 6.1495135e-05, -0.000929848931, 0.00850574393,
    -0.0539566651, -0.458466887, -1.15125036, -0.999995351,
))  # fmt: skip
LOG2_TAIL_BF16 = tl.constexpr((
    -3.19477067e-07, 1.7816601e-05, -0.000418451091, 0.00545580825,
    -0.0444065966, -0.472946197, -1.14293253, -1.00078189,
))  # fmt: skip
LOG2_SLOPE_F16 = tl.constexpr((
    -5.0342269e-08, 2.07856874e-06, -3.7898084e-05, 0.000405342522, -0.00286333542,
    0.0143601047, -0.0540831797, -0.561219394, -0.383051217, -0.588410258,
))  # fmt: skip
LOG2_SLOPE_BF16 = tl.constexpr((
    -4.55911131e-09, 3.04989442e-07, -8.78657465e-06, 0.00014326458, -0.0014657916,
    0.00991883036, -0.0460639521, -0.568524182, -0.380485713, -0.588557899,
))  # fmt: skip
LOG2_SLOPE_F32 = tl.constexpr((
    -7.29731271e-13, 5.65999157e-11, -1.91303928e-09, 3.68679771e-08, -4.42889444e-07,
    3.34902256e-06, -1.41800401e-05, 4.68700773e-06, 0.000384759507, -0.00309358537,
    0.015103233, -0.0550958849, -0.560582697, -0.383200765, -0.588404536,
))  # fmt: skip
TANH_BRACKET_F32 = tl.constexpr((
    4.74130356e-05, -0.000579199172, 0.00147457875, 0.000808923214, 0.00220640586,
    -0.0202439334, 0.0919642821, 0.705798566, 1.32897174,
))  # fmt: skip


@triton.jit
def gelu_erf(x, dtype: tl.constexpr):
    """x Phi(x) for a result of type `dtype`.

    max(x, 0) - t Phi(-t) with t = |x| has no sum 1 + erf that would cancel in the negative tail,
    and log2 Phi(-t) is smooth enough for a short polynomial in 16-bit types.
    """
    half = 0.5 * x
    if dtype == tl.float32:
        y = half * (1.0 + tl.erf(0.7071067811865476 * x))
    else:
        # half + |half| is max(x, 0), and NaN for -inf, as in x (1 + erf(x))
        positive = half + tl.abs(half)
        if dtype == tl.float16:
            t = tl.minimum(tl.abs(x), 5.8)
            y = tl.fma(-t, tl.exp2(polynomial(t, LOG2_TAIL_F16, 7)), positive)
        else:
            t = tl.minimum(tl.abs(x), 14.5)
            y = tl.fma(-t, tl.exp2(polynomial(t, LOG2_TAIL_BF16, 7)), positive)
    return y


@triton.jit
def gelu_erf_slope(x, dtype: tl.constexpr):
    """d(x) = Phi(x) + x phi(x) for a result of type `dtype`.

    It is 1 - d(-x), where d(-t) = (root - t) 2^W(t) and W is smooth. This form is exact at the zero
    of d, where the sum has lost all significant digits.
    """
    t = tl.abs(x)
    if dtype == tl.float32:
        w = polynomial(t, LOG2_SLOPE_F32, 14)
    elif dtype == tl.float16:
        w = polynomial(t, LOG2_SLOPE_F16, 9)
    else:
        w = polynomial(t, LOG2_SLOPE_BF16, 9)
    distance = (t - 0.7517915368080139) + 1.2114449e-08  # the root to 48 bits
    d = -distance * tl.exp2(w)
    # selected by the sign bit: -0.0 counts as negative
    return tl.where(x.to(tl.int32, bitcast=True) < 0, d, 1.0 - d)


@triton.jit
def gelu_tanh(x):
    """x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).

    The form with an exponential needs no tanh and does not cancel in the negative tail.
    """
    return x / (1.0 + tl.exp2(x * tl.fma(x * x, -0.1029432395800235, -2.302208198144325)))


@triton.jit
def gelu_tanh_slope(x, dtype: tl.constexpr):
    """s (1 + x (1 - s) 2u') with s = 1 / (1 + exp(-2u)), for a result of type `dtype`.

    The small factors are multiplied first and x^2 is bounded, so that for a huge x the product is 0
    and not 0 times infinity. In float32 the bracket is evaluated as a polynomial near its zero,
    where the sum has lost all significant digits.
    """
    xx = tl.minimum(x * x, 1e30)
    e = tl.exp2(x * tl.fma(xx, -0.1029432395800235, -2.302208198144325))
    s = 1.0 / (1.0 + e)
    inner = tl.fma(xx, 0.21406444881780076, 1.5957691216057308)
    if dtype == tl.float32:
        bracket = tl.fma(x * tl.where(x < 0, 1.0 - s, e * s), inner, 1.0)
        distance = (x + 0.7524614334106445) - 1.1339628e-08
        near = distance * polynomial(-x, TANH_BRACKET_F32, 8)
        d = s * tl.where((x < 0) & (x > -1.5), near, bracket)
    else:
        d = tl.fma(x * tl.fma(-s, s, s), inner, s)
    return d
