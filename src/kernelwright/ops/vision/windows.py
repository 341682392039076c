"""Pooling windows: argument checks, sizes, and the arguments that kernels receive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import pack as to_bytes

import torch
import torch.nn.functional as F

from kernelwright.contract import TensorSpec, packed
from kernelwright.contract.plan import Scalar
from kernelwright.ops._divisor import MOST

from .images import count, dense, pair, pixel_stride, vector

Pair = int | Sequence[int]
LARGEST = 25  # maximum pixels of a window in registers
MOST_WINDOWS = 9  # maximum windows of a block of pixels in registers
FARTHEST = 4  # maximum pixels between the windows of a block


def size(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows along a dimension of n pixels. With `ceil`, the last may end past the padding, but
    not begin there."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    positions = (room + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (positions - 1) * stride >= n + padding:
        positions -= 1
    return positions


def made(hw, kernel, stride, padding, dilation, ceil) -> list[int]:
    """Height and width of the result."""
    return [size(*each, ceil) for each in zip(hw, kernel, stride, padding, dilation, strict=True)]


def checked(
    input: torch.Tensor,
    kernel_size: Pair,
    stride: Pair | None,
    padding: Pair,
    dilation: Pair,
    ceil: bool,
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, stride, padding and dilation as pairs.

    Raises:
        TypeError, ValueError: input is not of real numbers, an argument is not a pair of integers,
            a padding is more than half of its window, or no window fits.
    """
    if input.dtype == torch.bool or input.is_complex():
        raise TypeError(f"input: must be real numbers, is {input.dtype}")
    kernel = pair("kernel_size", kernel_size, 1)
    step = kernel if stride is None or stride == [] or stride == () else pair("stride", stride, 1)
    around, apart = pair("padding", padding, 0), pair("dilation", dilation, 1)
    for n, k in zip(around, kernel, strict=True):
        if 2 * n > k:
            raise ValueError(f"padding: {padding} is more than half of kernel_size {kernel_size}")
    hw = list(input.shape[-2:])
    if 0 in hw:
        raise ValueError(f"input: has no pixels, its shape is {tuple(input.shape)}")
    if min(made(hw, kernel, step, around, apart, ceil)) < 1:
        raise ValueError(f"kernel_size: {kernel_size} is larger than the images of {tuple(hw)}")
    return kernel, step, around, apart


def axes(hw, out, kernel, stride, padding, dilation) -> Scalar:
    """kw::Windows: for both dimensions the pixels, windows, size, stride, padding, dilation."""
    of = zip(hw, out, kernel, stride, padding, dilation, strict=True)
    return packed(b"".join(to_bytes("<6i", *each) for each in of))


def windows(x, kernel, stride, padding, dilation, ceil, fill: float = -math.inf):
    """The pixels of each window in a new first dimension, with `fill` outside."""
    hw = x.shape[-3:-1]
    out = made(hw, kernel, stride, padding, dilation, ceil)
    after = [
        max((o - 1) * s + (k - 1) * d + 1 - p - n, 0)
        for o, s, k, d, p, n in zip(out, stride, kernel, dilation, padding, hw, strict=True)
    ]
    wide = F.pad(x, (0, 0, padding[1], after[1], padding[0], after[0]), value=fill)
    spans = [
        [slice(i * d, i * d + (o - 1) * s + 1, s) for i in range(k)]
        for o, s, k, d in zip(out, stride, kernel, dilation, strict=True)
    ]
    return torch.stack([wide[..., rows, columns, :] for rows in spans[0] for columns in spans[1]])


def rows_of_thread(config, wide: int) -> int:
    """Vertically adjacent windows per thread, of pixels or of vectors of channels."""
    return config["rows"] if wide == 1 else config["rows"] // 4


def not_in_rows(x: TensorSpec, hw, kernel, stride) -> str | None:
    """Why a rung with windows in registers does not support the call."""
    if math.prod(kernel) > LARGEST:
        return f"kernel: windows of {math.prod(kernel)} pixels, more than {LARGEST}"
    if stride[0] > FARTHEST:
        return f"stride: more than {FARTHEST}"
    if math.prod(hw) * pixel_stride(x) > MOST:
        return f"an image has more than {MOST} elements"
    return _too_many(x, hw)


def not_in_blocks(gy: TensorSpec, hw, kernel, stride, padding) -> str | None:
    """Why a rung with blocks of pixels, kw::Block, does not support the call."""
    if max(stride) > FARTHEST:
        return f"stride: more than {FARTHEST}"
    if math.prod(map(_windows_of_block, kernel, stride, padding)) > MOST_WINDOWS:
        return f"a pixel block is part of more than {MOST_WINDOWS} windows"
    return _too_many(gy, hw)


def _windows_of_block(kernel: int, stride: int, padding: int) -> int:
    """COUNT of kw::Block: the number of windows that contain one of `stride` pixels."""
    return (stride - 1 + padding) // stride + (kernel - 1 - padding) // stride + 1


def _too_many(t: TensorSpec, hw) -> str | None:
    if count(t) * math.prod(hw) * t.shape[-1] // width(t) > MOST:
        return f"more than {MOST} pixels"
    return None


def width(*tensors: TensorSpec) -> int:
    """Channels per thread: as many as 16 bytes hold of the first tensor, or one."""
    wide = math.gcd(*map(vector, tensors))
    return wide if wide * tensors[0].itemsize == 16 else 1


def together(gy: TensorSpec, hw, stride) -> int:
    """Pixels of planes that a store moves: a row of a block, if rows consist of whole ones."""
    across = stride[1]
    return across if gy.shape[-1] == 1 and across in (1, 2, 4) and hw[1] % across == 0 else 1


def side_by_side(t: TensorSpec, hw, out, kernel, stride, padding) -> int:
    """Horizontally adjacent windows of planes per thread, such that their pixels of a line are a
    vector of up to 16 bytes, and a few around; 0 if rows do not consist of whole vectors."""
    pixels, windows = hw[1], out[1]
    if (
        t.shape[-1] != 1
        or not dense(t)
        or windows * stride[1] != pixels
        or stride[1] not in (1, 2, 4)
    ):
        return 0
    if kernel[1] < stride[1] + padding[1]:
        return 0
    most = max(math.gcd(16, t.align) // (t.itemsize * stride[1]), 1)
    found = math.gcd(most, windows)
    return found if found > 1 else 0


def not_in_columns(t: TensorSpec, hw, out, kernel, stride, padding) -> str | None:
    """Why a rung with horizontally adjacent windows does not support the call."""
    if math.prod(kernel) > LARGEST:
        return f"kernel: windows of {math.prod(kernel)} pixels, more than {LARGEST}"
    if stride[0] > FARTHEST:
        return f"stride: more than {FARTHEST}"
    if not side_by_side(t, hw, out, kernel, stride, padding):
        return "its planes cannot be read as whole vectors"
    if math.prod(hw) > MOST:
        return f"an image has more than {MOST} pixels"
    return _too_many(t, hw)
