"""The windows of a pooling: checks of its arguments, its sizes, and what kernels are told."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack as to_bytes

import torch

from kernelwright.contract import packed
from kernelwright.contract.plan import Scalar

from .images import pair

Pair = int | Sequence[int]


def size(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows along a dimension of n pixels. With `ceil`, the last may end behind the padding, but
    not begin there."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    found = (room + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (found - 1) * stride >= n + padding:
        found -= 1
    return found


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
        TypeError, ValueError: input is not of real numbers, an argument is no pair of integers, a
            padding is more than half of its window, or no window fits.
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
    """kw::Windows: of both dimensions pixels, windows, size, stride, padding, dilation."""
    of = zip(hw, out, kernel, stride, padding, dilation, strict=True)
    return packed(b"".join(to_bytes("<6i", *each) for each in of))
