"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract.eligibility import kind, log2, unsupported_dtype
from kernelwright.ops._divisor import MOST
from kernelwright.ops.vision.images import count, dense, vector

THREADS = ({"block": 256},)
COLUMNS = ({"block": 256},)
CHANNELS = ({"block": 256, "unroll": 4}, {"block": 256, "unroll": 2})
INTEGER = ({"block": 256, "unroll": 4}, {"block": 256, "unroll": 2})
LONGEST = 2**22  # pixels along a dimension for which float32 quotients are accurate


def times(hw, size, given) -> int:
    """Outputs per pixel in both dimensions if that is the same integer, else 0."""
    (down, rest_h), (right, rest_w) = (divmod(n, m) for n, m in zip(size, hw, strict=True))
    return 0 if given or rest_h or rest_w or down != right else down


def fits(gpu, hw, size, given, scale_h, scale_w, **tensors):
    (name, t), *_ = tensors.items()
    if max(*hw, *size) > LONGEST:
        return f"more than {LONGEST} pixels along a dimension"
    return unsupported_dtype(t.dtype, name)


def _too_many(tensors, hw, size):
    """Why the vectors of the results cannot be counted in 32 bits. Rows of odd widths have vectors
    of one element."""
    (name, t), *_ = tensors.items()
    rows, columns = size if name == "x" else hw
    each = columns * t.shape[-1]
    if count(t) * rows * each // math.gcd(16 // t.itemsize, each) > MOST:
        return f"more than {MOST} vectors"
    return None


def fits_columns(gpu, hw, size, given, scale_h, scale_w, **tensors):
    (t,) = tensors.values()
    if t.shape[-1] != 1 or not dense(t):
        return "it is channels last, or has gaps between rows"
    return _too_many(tensors, hw, size) or fits(gpu, hw, size, given, scale_h, scale_w, **tensors)


def fits_channels(gpu, hw, size, given, scale_h, scale_w, **tensors):
    (t,) = tensors.values()
    if vector(t) * t.itemsize < 16:
        return "its channels are not 16-byte vectors"
    return _too_many(tensors, hw, size) or fits(gpu, hw, size, given, scale_h, scale_w, **tensors)


def fits_integer(gpu, hw, size, given, scale_h, scale_w, **tensors):
    (t,) = tensors.values()
    by, vector = times(hw, size, given), 16 // t.itemsize
    if by < 2 or vector % by:
        return "both dimensions must be enlarged by the same factor, 2, 4 or 8"
    if size[1] % vector or t.align < 16:
        return "its rows are not 16-byte vectors"
    return fits_columns(gpu, hw, size, given, scale_h, scale_w, **tensors)


def order(gpu, **specs):
    """The first that takes the call: 16-byte vectors, then any plane."""
    return "cuda_integer", "cuda_channels", "cuda_columns"


def bucket(hw, size, given, scale_h, scale_w, **tensors):
    """Key of a call in the tuned table: dtype, channels per vector, enlargement, size."""
    (t,) = tensors.values()
    return f"{kind(t.dtype)}/{vector(t)}/{times(hw, size, given)}/{log2(t.numel())}"
