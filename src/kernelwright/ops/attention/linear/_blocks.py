"""Blocks of linear attention's Triton kernels: loads, decays, products."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def block(
    ptr, stride, row, rows, first, COL: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
    like,
):  # fmt: skip
    """(n, WIDE) of rows `row` and columns from `first` on, with zeros past `rows` and COLS, in the
    element type of the pointer `like`."""
    col = first + tl.arange(0, WIDE)
    at = ptr + row.to(tl.int64)[:, None] * stride + (col * COL)[None, :]
    inside = (row < rows)[:, None]
    if COLS % WIDE != 0:
        inside = inside & (col < COLS)[None, :]
    return tl.load(at, mask=inside, other=0.0).to(like.dtype.element_ty)


@triton.jit
def store(x, ptr, stride, row, rows, first, COLS: tl.constexpr, WIDE: tl.constexpr):
    col = first + tl.arange(0, WIDE)
    at = ptr + row.to(tl.int64)[:, None] * stride + col[None, :]
    inside = (row < rows)[:, None] & (col < COLS)[None, :]
    tl.store(at, x.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def state_block(
    ptr, first_k, first_v, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    """(pointers, mask) of a block of a contiguous state."""
    k, v = first_k + tl.arange(0, BK), first_v + tl.arange(0, BV)
    return ptr + (k * V)[:, None] + v[None, :], (k < K)[:, None] & (v < V)[None, :]


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def apart(high_i, low_i, high_j, low_j):
    """c_i - c_j to base 2, for sums stored as two floats: the error is relative to the
    difference."""
    return (high_i - high_j) + (low_i - low_j)


@triton.jit
def ratios(high, low, i, j, DECAY: tl.constexpr):
    """exp(c_i - c_j) for j <= i, 0 elsewhere; masked before the exponential."""
    seen = j[None, :] <= i[:, None]
    if DECAY:
        log = apart(high[:, None], low[:, None], high[None, :], low[None, :])
        r = tl.exp2(tl.where(seen, log, float("-inf")))
    else:
        r = tl.where(seen, 1.0, 0.0)
    return r


@triton.jit
def triangle(m, x, UP: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr):
    """m x for m (N, N) that is 0 above its diagonal, or below it (UP). A row of x that is not
    finite makes only those rows NaN that depend on it, although 0 times NaN is NaN."""
    y = product(m, x, PRECISION)
    none = x.to(tl.float32) * 0.0  # NaN where x is not finite
    if tl.sum(tl.sum(none, 1), 0) != 0.0:
        i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
        if UP:
            seen = j >= i
        else:
            seen = j <= i
        bad = none != 0.0
        many = product(seen.to(x.dtype), bad.to(x.dtype), PRECISION)
        y = product(m, tl.where(bad, 0.0, x), PRECISION)
        y = tl.where(many > 0.0, float("nan"), y)
    return y
