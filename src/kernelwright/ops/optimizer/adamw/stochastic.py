"""Stochastic rounding to bfloat16, such that the mean of many results is the original number.

A second moment grows by (1 - beta2) (g^2 - v) per step, which is below half an ulp of bfloat16 if
beta2 is above 0.996: rounded to nearest, it would never change.

Element i, in memory order, of the k-th tensor of the list uses 32-bit word i % 4 of Philox's
counter (k << 40) + i // 4: the first moment its lower half, the second moment its upper half.
"""

from __future__ import annotations

import torch

from kernelwright.contract import is_dense
from kernelwright.ops.random._philox import words


def round_pair(
    m: torch.Tensor, v: torch.Tensor, seed: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 moments of the k-th parameter, rounded to bfloat16; strides are kept."""
    random = torch.cat(tuple(words(m.numel(), seed, k << 40)))
    return _rounded(m, random & 0xFFFF), _rounded(v, random >> 16)


def _rounded(x: torch.Tensor, random: torch.Tensor) -> torch.Tensor:
    """Adds random bits to the 16 bits that bfloat16 lacks: they carry with probability (value of
    these bits) / 2^16."""
    x = x if is_dense(x.shape, x.stride()) else x.contiguous()
    flat = x.as_strided((x.numel(),), (1,))
    carried = flat.view(torch.int32) + random.to(torch.int32)
    down = (carried >> 16).to(torch.int16).view(torch.bfloat16)
    # infinity and NaN are converted without rounding
    rounded = torch.where(flat.isfinite(), down, flat.to(torch.bfloat16))
    return rounded.as_strided(x.shape, x.stride())
