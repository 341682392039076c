"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, log2, unsupported_dtype
from kernelwright.ops.vision.images import dense
from kernelwright.ops.vision.windows import (
    made,
    not_in_blocks,
    not_in_columns,
    not_in_rows,
    width,
)

THREADS = ({"block": 256},)
ROWS = ({"block": 256, "rows": 4}, {"block": 256, "rows": 8})
COLUMNS = ({"block": 256, "rows": 2}, {"block": 128, "rows": 4})
BLOCKS = ({"block": 256}, {"block": 128})


def fits(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    return unsupported_dtype(x.dtype, "x")


def fits_rows(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    if max(dilation) > 1:
        return "dilation: more than 1 is not supported"
    return unsupported_dtype(x.dtype, "x") or not_in_rows(x, hw, kernel, stride)


def fits_backward(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    return unsupported_dtype(gy.dtype, "gy")


def fits_blocks(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    if max(dilation) > 1:
        return "dilation: more than 1 is not supported"
    return unsupported_dtype(gy.dtype, "gy") or not_in_blocks(gy, hw, kernel, stride, padding)


def fits_columns(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    if max(dilation) > 1:
        return "dilation: more than 1 is not supported"
    out = made(hw, kernel, stride, padding, dilation, ceil)
    why = not_in_columns(x, hw, out, kernel, stride, padding)
    return unsupported_dtype(x.dtype, "x") or why


def fits_columns_backward(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    why = fits_blocks(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep)
    if why:
        return why
    if not dense(at) or at.align < 16:
        return "at: is not contiguous, or not aligned to 16 bytes"
    return not_in_columns(gy, hw, gy.shape[-3:-1], kernel, stride, padding)


def order(gpu, **specs):
    """The first that takes the call: planes by vectors, windows in registers, any."""
    return "cuda_columns", "cuda_rows", "cuda_naive"


def order_backward(gpu, **specs):
    return "cuda_columns", "cuda_blocks"


def bucket(hw, kernel, stride, padding, dilation, ceil, keep, **tensors):
    """Key of a call in the tuned table: dtype, channels per thread, window, size."""
    t = next(iter(tensors.values()))
    shape = "x".join(map(str, (*kernel, *stride)))
    return f"{kind(t.dtype)}/{width(t)}/{shape}/{log2(t.numel())}"
