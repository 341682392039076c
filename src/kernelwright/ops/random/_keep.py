"""Which elements dropout keeps for a seed: a definition that operators which drop elements
share."""

from __future__ import annotations

import math

import torch

from ._philox import WORD, words


def kept(shape: tuple[int, ...], seed: torch.Tensor, p: float) -> torch.Tensor:
    """The elements that dropout keeps, as a mask of `shape`.

    Element i in row-major order uses word i // 2 % 4 of counter i // 8; for odd i the word's 16-bit
    halves are exchanged. The upper 24 bits are a uniform number in [0, 1) with 24 bits, and the
    element is kept if it is at least p: an integer comparison, so every implementation agrees. Two
    elements that share a word depend on each other only if one of its halves equals the upper 16
    bits of p: their covariance is below 2^-17 (ops/random/dropout/README.md).
    """
    threshold, n = math.ceil(p * 2**24), math.prod(shape)
    masks = [_both(part) >> 8 >= threshold for part in words(-(-n // 2), seed)]
    return torch.cat(masks)[:n].view(shape)


def _both(word: torch.Tensor) -> torch.Tensor:
    """Each word, followed by the word with its halves exchanged."""
    return torch.stack((word, (word << 16 | word >> 16) & WORD), -1).flatten()


def factor(
    shape: tuple[int, ...], seed: torch.Tensor, p: float, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """The factor of each element in dropout: 1 / (1 - p) if it is kept, else 0."""
    return kept(shape, seed, p).to(dtype) * (1 / (1 - p) if p < 1 else 0.0)
