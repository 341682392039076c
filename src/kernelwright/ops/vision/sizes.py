"""The size of a resampled image, from the arguments of torch.nn.functional.interpolate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernelwright.contract import arguments

from .images import pair


def sizes(
    input: torch.Tensor,
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
) -> tuple[list[int], list[float] | None]:
    """(height and width of the result, the scale factors if they differ from those of the sizes).

    Raises:
        TypeError: input is not floating point, or a size or factor is not a number.
        ValueError: both or neither are given, or a size is less than 1.
    """
    arguments.floating("input", input)
    if (size is None) == (scale_factor is None):
        raise ValueError("size: one of size and scale_factor must be given")
    hw = list(input.shape[-2:])
    if 0 in hw:
        raise ValueError(f"input: has no pixels, its shape is {tuple(input.shape)}")
    if size is not None:
        return pair("size", size, 1), None
    factors = _factors(scale_factor)
    scaled = [math.floor(n * f) for n, f in zip(hw, factors, strict=True)]
    if min(scaled) < 1:
        raise ValueError(f"scale_factor: {scale_factor} of {tuple(hw)} pixels gives no pixels")
    quotients = [n / m for n, m in zip(hw, scaled, strict=True)]
    same = all(q == 1 / f for q, f in zip(quotients, factors, strict=True))
    return scaled, None if same else factors


def _factors(value: float | Sequence[float] | None) -> list[float]:
    both = list(value) if isinstance(value, Sequence) else [value, value]
    if len(both) != 2 or not all(isinstance(f, int | float) for f in both):
        raise TypeError(f"scale_factor: must be one or two numbers, is {value!r}")
    if not all(math.isfinite(f) and f > 0 for f in both):
        raise ValueError(f"scale_factor: must be positive, is {value!r}")
    return [float(f) for f in both if f is not None]
