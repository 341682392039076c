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
CHUNK = 2**22  # counters at a time: a counter's words take some hundred bytes on the way


def philox(seed: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """Four 32-bit numbers for each 64-bit counter, in a new last dimension, as int64.

    The state's words c0, c2 are the rows of `even`, c1, c3 those of `odd`. Constants are made on
    the device: a copy from the host could not be captured in a CUDA graph.
    """
    row = torch.arange(2, device=seed.device)[:, None]
    multiplier = torch.where(row == 0, 0xD2511F53, 0xCD9E8D57)
    increment = torch.where(row == 0, 0x9E3779B9, 0xBB67AE85)
    key = seed >> 32 * row & WORD
    even = torch.stack((counter & WORD, torch.zeros_like(counter)))
    odd = torch.stack((counter >> 32 & WORD, torch.zeros_like(counter)))
    for _ in range(10):
        product = (even * multiplier).flip(0)
        even = (product >> 32 ^ odd ^ key) & WORD
        odd = product & WORD
        key = key + increment & WORD
    return torch.stack((even, odd), -1).transpose(0, 1).flatten(1)


def kept(shape: tuple[int, ...], seed: torch.Tensor, p: float) -> torch.Tensor:
    """The elements that dropout keeps, as a mask of `shape`.

    Element i in row-major order takes word i % 4 of counter i // 4. Its upper 24 bits are a
    uniform number in [0, 1) with 24 bits, which is kept when it is at least p: an integer
    comparison, so every implementation agrees.
    """
    n, threshold = math.prod(shape), math.ceil(p * 2**24)
    quads = -(-n // 4)
    masks = []
    for first in range(0, max(quads, 1), CHUNK):
        counters = torch.arange(first, min(first + CHUNK, quads), device=seed.device)
        masks.append(philox(seed, counters) >> 8 >= threshold)
    return torch.cat(masks).flatten()[:n].view(shape)


def factor(
    shape: tuple[int, ...], seed: torch.Tensor, p: float, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """What dropout multiplies each element with: 1 / (1 - p) where kept, else 0."""
    return kept(shape, seed, p).to(dtype) * (1 / (1 - p) if p < 1 else 0.0)


def pack(mask: torch.Tensor) -> torch.Tensor:
    """A mask's bits in row-major order: element i is bit i % 32 of word i // 32, as int32."""
    flat = mask.flatten()
    padded = torch.nn.functional.pad(flat, (0, -flat.numel() % 32)).view(-1, 32).to(torch.int64)
    words = (padded << torch.arange(32, device=mask.device)).sum(-1)
    return torch.where(words < 2**31, words, words - 2**32).to(torch.int32)


def unpack(words: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The mask of `shape` that `pack` packed."""
    bits = words[:, None] >> torch.arange(32, device=words.device, dtype=torch.int32) & 1
    return bits.flatten()[: math.prod(shape)].view(shape) != 0
