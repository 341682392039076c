"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, log2, unsupported_dtype
from kernelwright.ops.vision.windows import not_in_blocks, not_in_rows, width

THREADS = ({"block": 256},)
ROWS = ({"block": 256, "rows": 4}, {"block": 256, "rows": 8})
BLOCKS = ({"block": 256}, {"block": 128})


def fits(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    return unsupported_dtype(x.dtype, "x")


def fits_rows(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    if max(dilation) > 1:
        return "dilation: the pixels of a window are apart"
    return unsupported_dtype(x.dtype, "x") or not_in_rows(x, hw, kernel, stride)


def fits_backward(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    return unsupported_dtype(gy.dtype, "gy")


def fits_blocks(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    if max(dilation) > 1:
        return "dilation: the pixels of a window are apart"
    return unsupported_dtype(gy.dtype, "gy") or not_in_blocks(gy, hw, kernel, stride, padding)


def order(gpu, **specs):
    """None is proven on a GPU yet."""
    return ()


def bucket(hw, kernel, stride, padding, dilation, ceil, keep, **tensors):
    """Key of a call in the tuned table: dtype, channels of a thread, window, size."""
    t = next(iter(tensors.values()))
    shape = "x".join(map(str, (*kernel, *stride)))
    return f"{kind(t.dtype)}/{width(t)}/{shape}/{log2(t.numel())}"
