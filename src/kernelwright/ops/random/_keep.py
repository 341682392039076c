"""What dropout keeps, from a seed: its definition, which subjects that drop elements share."""

from __future__ import annotations

import math

import torch

from ._philox import WORD, words


def kept(shape: tuple[int, ...], seed: torch.Tensor, p: float) -> torch.Tensor:
    """The elements that dropout keeps, as a mask of `shape`.

    Element i in row-major order takes word i // 2 % 4 of counter i // 8; where i is odd, with the
    word's halves of 16 bits exchanged. The upper 24 bits are a uniform number in [0, 1) with 24
    bits, which is kept when it is at least p: an integer comparison, so every implementation
    agrees. Two that share a word depend on each other only where one of its halves equals p's upper
    16 bits: their covariance is below 2^-17 (ops/random/dropout/README.md).
    """
    threshold, n = math.ceil(p * 2**24), math.prod(shape)
    masks = [_both(part) >> 8 >= threshold for part in words(-(-n // 2), seed)]
    return torch.cat(masks)[:n].view(shape)


def _both(word: torch.Tensor) -> torch.Tensor:
    """Each word, and behind it the word with its halves exchanged."""
    return torch.stack((word, (word << 16 | word >> 16) & WORD), -1).flatten()


def factor(
    shape: tuple[int, ...], seed: torch.Tensor, p: float, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """What dropout multiplies each element with: 1 / (1 - p) where kept, else 0."""
    return kept(shape, seed, p).to(dtype) * (1 / (1 - p) if p < 1 else 0.0)
