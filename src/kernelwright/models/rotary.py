"""The angles of rotary positions (Su et al., RoFormer, arXiv:2104.09864).

Letters at the end of a name are its shape: S positions, D width of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RopeScaling:
    """How the frequencies of rotary positions are stretched for a longer context.

    Attributes:
        kind: "linear" divides every frequency by `factor`; "llama3" only those whose wavelength is
            above context / low, none whose wavelength is below context / high, and blends between.
        context: the model's context before it was stretched.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    context: int = 8192

    def __post_init__(self):
        if self.kind not in ("linear", "llama3"):
            raise ValueError(f'rope scaling: must be "linear" or "llama3", is {self.kind!r}')


def angles(
    positions: int,
    width: int,
    base: float,
    scaling: RopeScaling | None,
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin) of each position and pair of a head's dimensions, float32, (S, D / 2)."""
    powers = torch.arange(0, width, 2, dtype=torch.int64, device=device).float() / width
    frequencies = _scaled(1.0 / base**powers, scaling)
    angles_SD = torch.outer(torch.arange(positions, device=device).float(), frequencies)
    return angles_SD.cos(), angles_SD.sin()


def _scaled(frequencies: torch.Tensor, scaling: RopeScaling | None) -> torch.Tensor:
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    # rotations of each pair over the context before it was stretched
    turns = scaling.context * frequencies / (2 * math.pi)
    kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)
