"""What dropout keeps, from a seed: its definition, which subjects that drop elements share."""

from __future__ import annotations

import math

import torch

from ._philox import words


def kept(shape: tuple[int, ...], seed: torch.Tensor, p: float) -> torch.Tensor:
    """The elements that dropout keeps, as a mask of `shape`.

    Element i in row-major order takes word i % 4 of counter i // 4. Its upper 24 bits are a
    uniform number in [0, 1) with 24 bits, which is kept when it is at least p: an integer
    comparison, so every implementation agrees.
    """
    threshold = math.ceil(p * 2**24)
    masks = [part >> 8 >= threshold for part in words(math.prod(shape), seed)]
    return torch.cat(masks).view(shape)


def factor(
    shape: tuple[int, ...], seed: torch.Tensor, p: float, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """What dropout multiplies each element with: 1 / (1 - p) where kept, else 0."""
    return kept(shape, seed, p).to(dtype) * (1 / (1 - p) if p < 1 else 0.0)
