"""Images in the form that the family's kernels take: (images, height, width, channels), contiguous.

Planes of NCHW images are images of one channel each; for channels-last images, the channels remain
the last dimension. Both are views.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.contract import TensorSpec, arguments, rows_view
from kernelwright.contract.sharding import Rows
from kernelwright.ops._divisor import MOST

BLOCK = 256  # threads of a block

Back = Callable[[torch.Tensor], torch.Tensor]


def spatial(args) -> tuple[int, ...]:
    """Height and width, counted from the end."""
    return (-3, -2)


def sharding(main: str) -> Rows:
    """Over images and channels, which do not depend on each other."""
    return Rows(spatial, main=main)


def as_images(name: str, x: torch.Tensor, least: int = 3) -> tuple[torch.Tensor, Back]:
    """(images of a tensor (N, C, H, W) or, if `least` is 3, (C, H, W); the function that converts a
    result back to the tensor's form).

    Raises:
        ValueError: the tensor has another number of dimensions.
    """
    arguments.tensor(name, x)
    if not least <= x.ndim <= 4:
        which = "4" if least == 4 else "3 or 4"
        raise ValueError(f"{name}: has {x.ndim} dimensions, should have {which}")
    channels = x.shape[-3]
    if x.ndim == 4 and channels > 1 and x.stride(1) == 1 and not x.is_contiguous():
        return x.permute(0, 2, 3, 1), lambda y: y.permute(0, 3, 1, 2)
    lead = x.shape[:-2]
    planes = x.reshape(lead.numel(), *x.shape[-2:], 1)
    return planes, lambda y: y.reshape(*lead, *y.shape[-3:-1])


def pair(name: str, value: Any, least: int) -> list[int]:
    """One integer for both dimensions, or one for each, as a list.

    Raises:
        TypeError, ValueError: the value is neither, or below `least`.
    """
    both = [value, value] if isinstance(value, int) else list(value)
    if len(both) == 1:
        both *= 2
    if len(both) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) for v in both):
        raise TypeError(f"{name}: must be one or two integers, is {value!r}")
    if min(both) < least:
        raise ValueError(f"{name}: must be at least {least}, is {value!r}")
    return both


def by_pytorch(function: Callable, pixels: Sequence[int], *images: torch.Tensor) -> Any:
    """Results of a PyTorch operator, which takes NCHW, on tensors (*, H, W, C), a few images at a
    time if there are more than its kernels can count.

    Args:
        function: takes tensors (N, C, H, W), planes as one image of many channels.
        pixels: height and width of the results.
    """
    lead, channels = images[0].shape[:-3], images[0].shape[-1]
    flat = [t.reshape(lead.numel(), *t.shape[-3:]) for t in images]
    largest = max(math.prod(pixels), *(math.prod(t.shape[1:3]) for t in flat)) * channels
    each = max(1, MOST // max(largest, 1))
    parts = [_one_part(function, [t[i : i + each] for t in flat])
             for i in range(0, lead.numel(), each)]  # fmt: skip
    whole = [p[0] if len(p) == 1 else torch.cat(p) for p in zip(*parts, strict=True)]
    whole = [t.reshape(*lead, *t.shape[1:]).contiguous() for t in whole]
    return whole[0] if len(whole) == 1 else tuple(whole)


def _one_part(function: Callable, images: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    planes = images[0].shape[-1] == 1
    given = [t[..., 0][None] if planes else t.permute(0, 3, 1, 2) for t in images]
    value = function(*given)
    results = value if isinstance(value, tuple) else (value,)
    return [y[0][..., None] if planes else y.permute(0, 2, 3, 1) for y in results]


def sized(like: torch.Tensor, hw: Sequence[int]) -> torch.Tensor:
    """A tensor (N, C, H, W) for the backward of an operator that uses only the size of its
    input."""
    return like.new_empty(*like.shape[:2], *hw)


def count(x: TensorSpec) -> int:
    """The number of images of a tensor (*, H, W, C)."""
    product = 1
    for n in x.shape[:-3]:
        product *= n
    return product


def pixel_stride(x: TensorSpec) -> int:
    """Elements between two pixels of a tensor of layout "rows"."""
    view = rows_view(x.shape, x.strides)
    assert view is not None, x
    return view[2]


def dense(x: TensorSpec) -> bool:
    return x.shape[-1] == pixel_stride(x) or x.numel() == x.shape[-1]


def vector(x: TensorSpec) -> int:
    """Channels per access, at most 16 bytes."""
    return math.gcd(16 // x.itemsize, x.align // x.itemsize, x.shape[-1], pixel_stride(x))
