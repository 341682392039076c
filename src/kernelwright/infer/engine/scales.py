"""The scales of a cache of 8-bit integers, measured on random tokens."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.models.attention import causal_attention

_TOKENS = 512


class _Largest:
    """A `KeyValues` without earlier tokens that notes the largest key and value of each layer."""

    def __init__(self, device: torch.device):
        self.device = device
        self.of_layers: list[tuple[float, float]] = []

    def positions(self, tokens: int) -> torch.Tensor:
        return torch.arange(tokens, device=self.device)[None]

    def attend(
        self,
        layer: int,
        q_BHTD: torch.Tensor,
        k_BGTD: torch.Tensor,
        v_BGTD: torch.Tensor,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> torch.Tensor:
        self.of_layers.append((k_BGTD.abs().amax().item(), v_BGTD.abs().amax().item()))
        return causal_attention(q_BHTD, k_BGTD, v_BGTD, scale, window=window, softcap=softcap)


@torch.inference_mode()
def measured(model: Any, vocabulary: int) -> list[tuple[float, float]]:
    """The scales of keys and values of each layer: the largest of 512 random tokens becomes 127.

    Larger elements are stored as 127. A few random tokens suffice, because the largest elements of
    keys are in the same dimensions of all tokens (Liu et al., KIVI, 2024).
    """
    device = model.head_VC.device
    draw = torch.Generator().manual_seed(0)
    shape = 1, min(_TOKENS, model.config.context)
    tokens_1T = torch.randint(vocabulary, shape, generator=draw).to(device)
    largest = _Largest(device)
    model.hidden(tokens_1T, largest)
    return [(k / 127 or 1.0, v / 127 or 1.0) for k, v in largest.of_layers]
