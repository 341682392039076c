"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract.eligibility import kind, log2, unsupported_dtype
from kernelwright.ops.vision.images import MOST, count, vector

THREADS = ({"block": 256},)
ROWS = ({"block": 256, "rows": 4}, {"block": 256, "rows": 1})
BLOCKS = ({"block": 256}, {"block": 128})
LARGEST = 25  # pixels of a window in registers
MOST_WINDOWS = 9  # windows of a block of pixels in registers
FARTHEST = 4  # pixels between the windows of a block


def fits(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    return unsupported_dtype(x.dtype, "x")


def fits_rows(gpu, x, hw, kernel, stride, padding, dilation, ceil, keep):
    if math.prod(kernel) > LARGEST:
        return f"kernel: windows of {math.prod(kernel)} pixels, more than {LARGEST}"
    return _too_many(x, hw) or unsupported_dtype(x.dtype, "x")


def fits_backward(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    return unsupported_dtype(gy.dtype, "gy")


def fits_blocks(gpu, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    if max(dilation) > 1:
        return "dilation: the pixels of a window are apart"
    if max(stride) > FARTHEST:
        return f"stride: more than {FARTHEST}"
    if math.prod(map(windows_of_block, kernel, stride, padding)) > MOST_WINDOWS:
        return f"more than {MOST_WINDOWS} windows hold pixels of a block"
    return _too_many(gy, hw) or unsupported_dtype(gy.dtype, "gy")


def windows_of_block(kernel: int, stride: int, padding: int) -> int:
    """kw::Block's COUNT: windows that hold one of `stride` pixels."""
    return (stride - 1 + padding) // stride + (kernel - 1 - padding) // stride + 1


def together(gy, hw, stride) -> int:
    """Pixels of planes that a store moves: a row of a block, where rows are made of whole ones."""
    across = stride[1]
    return across if gy.shape[-1] == 1 and across in (1, 2, 4) and hw[1] % across == 0 else 1


def width(*tensors) -> int:
    """Channels of a thread: as many as 16 bytes hold of the first tensor, or one."""
    wide = math.gcd(*map(vector, tensors))
    return wide if wide * tensors[0].itemsize == 16 else 1


def _too_many(t, hw):
    if count(t) * math.prod(hw) * t.shape[-1] // width(t) > MOST:
        return f"more than {MOST} pixels"
    return None


def order(gpu, **specs):
    """None is proven on a GPU yet."""
    return ()


def bucket(hw, kernel, stride, padding, dilation, ceil, keep, **tensors):
    """Key of a call in the tuned table: dtype, channels of a thread, window, size."""
    t = next(iter(tensors.values()))
    shape = "x".join(map(str, (*kernel, *stride)))
    return f"{kind(t.dtype)}/{width(t)}/{shape}/{log2(t.numel())}"
