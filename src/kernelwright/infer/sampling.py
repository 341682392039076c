"""The choice of the next token from logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

import kernelwright as kw
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
    """Draw a token for each row: int64, (B,)."""
    if how.temperature == 0.0:
        return logits_BV.argmax(-1)
    given = how.temperature, how.top_k, how.top_p, how.min_p
    return kw.sample(logits_BV, *given, generator=generator)
