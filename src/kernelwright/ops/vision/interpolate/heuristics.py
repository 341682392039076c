"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract.eligibility import kind, log2, unsupported_dtype
from kernelwright.ops._divisor import MOST
from kernelwright.ops.vision.images import count, dense, vector

from .spec import keeps

THREADS = ({"block": 256},)
COLUMNS = ({"block": 256, "rows": 4}, {"block": 256, "rows": 2})
CHANNELS = ({"block": 256}, {"block": 128})
LONGEST = 2**22  # pixels along a dimension for which float32 quotients are accurate
WEIGHTS = 8  # maximum outputs of a column whose weights are in registers


def fits(gpu, hw, size, corners, given, scale_h, scale_w, **tensors):
    (name, t), *_ = tensors.items()
    if keeps(hw, size):
        return "a dimension keeps its size"
    if max(*hw, *size) > LONGEST:
        return f"more than {LONGEST} pixels along a dimension"
    return unsupported_dtype(t.dtype, name)


def _too_many(tensors, hw, size):
    (name, t), *_ = tensors.items()
    if count(t) * math.prod(size if name == "x" else hw) * t.shape[-1] > MOST:
        return f"more than {MOST} elements"
    return None


def fits_columns(gpu, hw, size, corners, given, scale_h, scale_w, **tensors):
    (t,) = tensors.values()
    if t.shape[-1] != 1 or not dense(t):
        return "it is channels last, or has gaps between rows"
    return _too_many(tensors, hw, size) or fits(
        gpu, hw, size, corners, given, scale_h, scale_w, **tensors
    )


def outputs_of_pixel(source: int, size: int, corners: bool) -> int:
    """The largest number of outputs that use a pixel along a dimension, plus one for rounding."""
    if size == 1 or source == 1:
        return size
    step = (source - 1) / (size - 1) if corners else source / size
    edge = 0 if corners else math.ceil(0.5 / step)  # outputs before the center of the first pixel
    return math.ceil(2 / step) + 1 + edge


def fits_columns_backward(gpu, hw, size, corners, given, scale_h, scale_w, **tensors):
    if given:
        return "given: a scale_factor is not supported"
    if outputs_of_pixel(hw[1], size[1], corners) > WEIGHTS:
        return f"a pixel is part of more than {WEIGHTS} outputs of a row"
    return fits_columns(gpu, hw, size, corners, given, scale_h, scale_w, **tensors)


def fits_channels(gpu, hw, size, corners, given, scale_h, scale_w, **tensors):
    (t,) = tensors.values()
    if vector(t) * t.itemsize < 16:
        return "its channels are not 16-byte vectors"
    return _too_many(tensors, hw, size) or fits(
        gpu, hw, size, corners, given, scale_h, scale_w, **tensors
    )


def order(gpu, **specs):
    """The first that takes the call."""
    return "cuda_channels", "cuda_columns"


def bucket(hw, size, corners, given, scale_h, scale_w, **tensors):
    """Key of a call in the tuned table: dtype, channels per vector, enlarged or not, size."""
    (t,) = tensors.values()
    larger = "up" if math.prod(size) > math.prod(hw) else "down"
    return f"{kind(t.dtype)}/{vector(t)}/{larger}/{log2(t.numel())}"
