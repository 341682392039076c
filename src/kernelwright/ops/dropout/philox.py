"""Philox4x32-10 in plain PyTorch: the random numbers that a seed and a place define.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A counter goes through ten
rounds of multiplication and exclusive or under a key; any counter's numbers are computed without
those before it, so a mask need not be stored. 32-bit words live in int64 tensors here; a product
of two of them wraps, and its 64 bits are still right.
"""

from __future__ import annotations

import math

import torch

WORD = 0xFFFFFFFF


def philox(seed: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """Four 32-bit numbers for each 64-bit counter, in a new last dimension, as int64."""
    key0, key1 = seed & WORD, seed >> 32 & WORD
    c0, c1 = counter & WORD, counter >> 32 & WORD
    c2 = c3 = torch.zeros_like(counter)
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (b >> 32 & WORD) ^ c1 ^ key0,
            b & WORD,
            (a >> 32 & WORD) ^ c3 ^ key1,
            a & WORD,
        )
        key0, key1 = key0 + 0x9E3779B9 & WORD, key1 + 0xBB67AE85 & WORD
    return torch.stack((c0, c1, c2, c3), -1)


def kept(shape: tuple[int, ...], seed: torch.Tensor, p: float) -> torch.Tensor:
    """The elements that dropout keeps, as a mask of `shape`.

    Element i in row-major order takes word i % 4 of counter i // 4. Its upper 24 bits are a
    uniform number in [0, 1) with 24 bits, which is kept when it is at least p: an integer
    comparison, so every implementation agrees.
    """
    n = math.prod(shape)
    words = philox(seed, torch.arange(-(-n // 4), device=seed.device)).flatten()[:n]
    return (words >> 8 >= math.ceil(p * 2**24)).view(shape)


def factor(shape: tuple[int, ...], seed: torch.Tensor, p: float) -> torch.Tensor:
    """What dropout multiplies each element with, float64: 1 / (1 - p) where kept, else 0."""
    scale = 1 / (1 - p) if p < 1 else 0.0
    return torch.where(kept(shape, seed, p), scale, 0.0).double()
