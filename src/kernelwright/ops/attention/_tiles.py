"""Tiles of rows for attention's Triton kernels: loads, stores, products."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def tile(
    ptr, stride, first, rows, COL: tl.constexpr, N: tl.constexpr, WIDE: tl.constexpr,
    WIDE2: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Loads N rows of WIDE elements, COL apart, from row `first` on: (N, WIDE2), with zeros past
    WIDE and, with EDGE, past `rows`."""
    row, col = tl.arange(0, N)[:, None], tl.arange(0, WIDE2)[None, :]
    at = ptr + tl.cast(first, tl.int64) * stride + (row * stride + col * COL)
    if EDGE and WIDE != WIDE2:
        x = tl.load(at, mask=(first + row < rows) & (col < WIDE), other=0.0)
    elif EDGE:
        x = tl.load(at, mask=first + row < rows, other=0.0)
    elif WIDE != WIDE2:
        x = tl.load(at, mask=col < WIDE, other=0.0)
    else:
        x = tl.load(at)
    return x


@triton.jit
def store(
    x, ptr, stride, first, rows, COL: tl.constexpr, N: tl.constexpr, WIDE: tl.constexpr,
    WIDE2: tl.constexpr,
):  # fmt: skip
    """Stores (N, WIDE2) to the elements that `tile` loads."""
    row, col = tl.arange(0, N)[:, None], tl.arange(0, WIDE2)[None, :]
    at = ptr + tl.cast(first, tl.int64) * stride + (row * stride + col * COL)
    tl.store(at, x.to(ptr.dtype.element_ty), mask=(first + row < rows) & (col < WIDE))
