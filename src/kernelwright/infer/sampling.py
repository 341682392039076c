"""The choice of the next token from logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernelwright.support.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; the filters apply in this order.

    Attributes:
        temperature: logits are divided by it; 0 takes the most likely token.
        top_k: only the k most likely tokens; 0 for all.
        top_p: only the most likely tokens that together have this probability (Holtzman et al.
            2020, nucleus sampling); 1 for all.
        min_p: only tokens with at least this share of the largest probability (Nguyen et al. 2024);
            0 for all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self):
        if not 0.0 <= self.temperature < math.inf:
            raise UsageError(f"temperature: must be finite and not negative, is {self.temperature}")
        if self.top_k < 0:
            raise UsageError(f"top_k: must not be negative, is {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p: must be above 0 and at most 1, is {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise UsageError(f"min_p: must be between 0 and 1, is {self.min_p}")


def choose(
    logits_BV: torch.Tensor, how: Sampling, generator: torch.Generator | None = None
) -> torch.Tensor:
    """A token of each row: int64, (B,)."""
    if how.temperature == 0.0:
        return logits_BV.argmax(-1)
    p_BV = filtered(logits_BV.float() / how.temperature, how).softmax(-1)
    # the first of exponential clocks with these rates; torch.multinomial would wait for the GPU
    clocks_BV = torch.empty_like(p_BV).exponential_(generator=generator)
    return (p_BV / clocks_BV).argmax(-1)


def filtered(logits_BV: torch.Tensor, how: Sampling) -> torch.Tensor:
    """Logits with -inf for tokens that are not to be drawn."""
    if 0 < how.top_k < logits_BV.shape[-1]:
        least_B1 = logits_BV.topk(how.top_k).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, -math.inf)
    if how.top_p < 1.0:
        sorted_BV, order_BV = logits_BV.sort(descending=True)
        p_BV = sorted_BV.softmax(-1)
        # a token is kept while those before it have less than top_p; the first always is
        drop_BV = p_BV.cumsum(-1) - p_BV >= how.top_p
        drop_BV[:, 0] = False
        logits_BV = logits_BV.masked_fill(drop_BV.scatter(-1, order_BV, drop_BV), -math.inf)
    if how.min_p > 0.0:
        p_BV = logits_BV.softmax(-1)
        least_B1 = how.min_p * p_BV.amax(-1, keepdim=True)
        logits_BV = logits_BV.masked_fill(p_BV < least_B1, -math.inf)
    return logits_BV
