"""RMSNorm (Zhang and Sennrich, arXiv:1910.07467) with an offset of the weight."""

from __future__ import annotations

from torch import nn


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * (weight + offset) over the last dimension.

    Args:
        width: of the last dimension.
        offset: 1 if the weight is stored minus 1, as Gemma's.
    """

    def __init__(self, width: int, eps: float, offset: float = 0.0):
        self.offset = offset
        super().__init__(width, eps)

    def reset_parameters(self) -> None:
        """Set the weight so that it scales by 1."""
        nn.init.constant_(self.weight, 1.0 - self.offset)
