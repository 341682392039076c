"""Masks of loads and stores."""

import triton
import triton.language as tl


@triton.jit
def below(index, end, ALL: tl.constexpr):
    """index < end. ALL: constant True instead, so that the compiler removes the masks of
    accesses."""
    return tl.full(index.shape, True, tl.int1) if ALL else index < end
