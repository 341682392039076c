"""Philox4x32-10 in plain PyTorch: random numbers defined by a seed and a position.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A counter goes through ten
rounds of multiplication and exclusive or with a key. The numbers of a counter are computed without
those before it, so a mask need not be stored. 32-bit words are stored in int64 tensors here; the
product of two of them wraps around, and its 64 bits are still correct.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

WORD = 0xFFFFFFFF
CHUNK = 2**22  # counters at a time: intermediate results take some hundred bytes per counter


def philox(seed: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """Four 32-bit numbers for each 64-bit counter, in a new last dimension, as int64.

    The state's words c0, c2 are the rows of `even`, c1, c3 those of `odd`. Constants are created on
    the device, because a copy from the host could not be captured in a CUDA graph.
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


def words(n: int, seed: torch.Tensor, first: int = 0) -> Iterator[torch.Tensor]:
    """The n words of the counters from `first` on, four per counter, in parts."""
    for start in range(0, max(n, 1), 4 * CHUNK):
        part = min(n - start, 4 * CHUNK)
        quads = torch.arange(-(-part // 4), device=seed.device)
        yield philox(seed, quads + (first + start // 4)).flatten()[:part]
