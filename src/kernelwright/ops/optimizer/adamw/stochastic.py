"""Rounding to bfloat16 up or down at random, so that the mean of many roundings is the number.

A second moment grows by (1 - beta2) (g^2 - v) a step, under half an ulp of bfloat16 once beta2 is
above 0.996: rounded to nearest it would stand still for ever.

Element i of a tensor, counted as it lies in memory, of the list's k-th tensor takes 32-bit word
i % 4 of Philox's counter (k << 40) + i // 4: the first moment its lower half, the second moment
its upper one.
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
    """The 16 bits that a bfloat16 lacks carry with probability of their size over 2^16."""
    x = x if is_dense(x.shape, x.stride()) else x.contiguous()
    flat = x.as_strided((x.numel(),), (1,))
    carried = flat.view(torch.int32) + random.to(torch.int32)
    down = (carried >> 16).to(torch.int16).view(torch.bfloat16)
    # an infinity or a NaN has no neighbours
    rounded = torch.where(flat.isfinite(), down, flat.to(torch.bfloat16))
    return rounded.as_strided(x.shape, x.stride())
