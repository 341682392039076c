"""Philox4x32-10 with 128-bit counters in plain PyTorch: numbers of a position in a sequence.

`_philox.philox` is sequence 0, and documents how words are represented.
"""

from __future__ import annotations

import torch

from ._philox import WORD

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
INCREMENTS = 0x9E3779B9, 0xBB67AE85


def philox(seed: torch.Tensor, position: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """Four 32-bit numbers for each pair of 64-bit numbers, in a new last dimension, as int64."""
    a, b = position & WORD, position >> 32 & WORD
    c, d = sequence & WORD, sequence >> 32 & WORD
    keys = seed & WORD, seed >> 32 & WORD
    for _ in range(10):
        one, two = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (
            (two >> 32 ^ b ^ keys[0]) & WORD,
            two & WORD,
            (one >> 32 ^ d ^ keys[1]) & WORD,
            one & WORD,
        )
        keys = tuple(k + step & WORD for k, step in zip(keys, INCREMENTS, strict=True))
    return torch.stack((a, b, c, d), -1)
