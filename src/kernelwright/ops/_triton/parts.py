"""The second step of a sum over rows: adds the partial sums in a fixed order."""

import triton
import triton.language as tl


@triton.jit
def add_parts(part_ptr, sum_ptr, n_parts, n_cols, PARTS: tl.constexpr, COLS: tl.constexpr):
    """Adds up COLS columns per program of an array of n_parts rows and n_cols columns."""
    col = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((PARTS, COLS), tl.float32)
    for first in range(0, n_parts, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        inside = (part < n_parts) & (col < n_cols)
        total += tl.load(part_ptr + part * n_cols + col, mask=inside, other=0.0)
    s = tl.sum(total, axis=0, keep_dims=True)
    tl.store(sum_ptr + col, s.to(sum_ptr.dtype.element_ty), mask=col < n_cols)
