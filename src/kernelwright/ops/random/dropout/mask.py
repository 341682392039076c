"""A stored mask with one bit per element."""

from __future__ import annotations

import math

import torch


def pack(mask: torch.Tensor) -> torch.Tensor:
    """The bits of a mask in row-major order: element i is bit i % 32 of word i // 32, as int32."""
    flat = mask.flatten()
    padded = torch.nn.functional.pad(flat, (0, -flat.numel() % 32)).view(-1, 32).to(torch.int64)
    words = (padded << torch.arange(32, device=mask.device)).sum(-1)
    return torch.where(words < 2**31, words, words - 2**32).to(torch.int32)


def unpack(words: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The inverse of `pack`: a mask of `shape`."""
    bits = words[:, None] >> torch.arange(32, device=words.device, dtype=torch.int32) & 1
    return bits.flatten()[: math.prod(shape)].view(shape) != 0
