"""The GPT-2 of the training check: each of its operators can be swapped, its attention is made of
softmax. The model that users train is in kernelwright.models.

Shapes stand behind the names: B batch, T tokens, C width, H heads, D = C / H, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    """GPT-2 124M by default, its vocabulary padded to a multiple of 128."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    context: int = 1024
    vocabulary: int = 50304


def _add_layer_norm(x, residual, shape, weight, bias):
    h = x + residual
    return F.layer_norm(h, shape, weight, bias), h


def _bias_gelu(x, bias):
    return F.gelu(x + bias, approximate="tanh")


def _linear_cross_entropy(x, weight, target):
    return F.cross_entropy(F.linear(x, weight), target)


@dataclass(frozen=True)
class Operators:
    """What the model computes with: PyTorch's own, or Kernelwright's by `with_kernels`."""

    embedding: Callable[..., Any] = F.embedding
    layer_norm: Callable[..., Any] = F.layer_norm
    add_layer_norm: Callable[..., Any] = _add_layer_norm
    softmax: Callable[..., Any] = F.softmax
    bias_gelu: Callable[..., Any] = _bias_gelu
    linear_cross_entropy: Callable[..., Any] = _linear_cross_entropy

    @staticmethod
    def with_kernels(*names: str) -> Operators:
        """Kernelwright's operators of these names, PyTorch's otherwise; all without a name.

        Raises:
            ValueError: the model has no operator of that name.
        """
        import kernelwright as kw

        known = {f.name for f in fields(Operators)}
        for name in names:
            if name not in known:
                raise ValueError(
                    f"names: GPT-2 has no operator {name!r}; it has {', '.join(sorted(known))}"
                )
        swapped = {name: getattr(kw, name) for name in names or known}
        if "bias_gelu" in swapped:
            swapped["bias_gelu"] = lambda x, bias: kw.bias_gelu(x, bias, approximate="tanh")
        return replace(Operators(), **swapped)


class Block(nn.Module):
    """Attention, then an MLP, each added to the stream of residuals. The sum and the next norm
    are one operator, so a block takes and gives (what is still to be added, the stream)."""

    def __init__(self, config: Config, operators: Operators):
        super().__init__()
        self.operators, self.heads, width = operators, config.heads, config.width
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width, bias=False)
        self.mlp_bias = nn.Parameter(torch.zeros(4 * width))
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, delta_BTC, stream_BTC):
        x_BTC, stream_BTC = self._add_norm(self.attention_norm, delta_BTC, stream_BTC)
        delta_BTC = self._attention(x_BTC)
        x_BTC, stream_BTC = self._add_norm(self.mlp_norm, delta_BTC, stream_BTC)
        hidden_BTF = self.mlp_in(x_BTC)
        # under autocast a linear layer's bias is cast with it
        bias_F = self.mlp_bias.to(hidden_BTF.dtype)
        hidden_BTF = self.operators.bias_gelu(hidden_BTF, bias_F)
        return self.mlp_out(hidden_BTF), stream_BTC

    def _add_norm(self, norm, delta, stream):
        return self.operators.add_layer_norm(
            delta, stream, norm.normalized_shape, norm.weight, norm.bias
        )

    def _attention(self, x_BTC):
        B, T, C = x_BTC.shape
        parts = self.qkv(x_BTC).view(B, T, 3, self.heads, C // self.heads)
        q_BHTD, k_BHTD, v_BHTD = (p.transpose(1, 2) for p in parts.unbind(2))
        scores_BHTT = q_BHTD @ k_BHTD.mT / math.sqrt(C // self.heads)
        future_TT = torch.ones(T, T, dtype=torch.bool, device=x_BTC.device).triu(1)
        weights_BHTT = self.operators.softmax(scores_BHTT.masked_fill(future_TT, -math.inf), dim=-1)
        return self.attention_out((weights_BHTT @ v_BHTD).transpose(1, 2).reshape(B, T, C))


class GPT2(nn.Module):
    """The model; its token embedding is its output layer too.

    Args:
        config: sizes.
        operators: what it computes with.
    """

    def __init__(self, config: Config, operators: Operators | None = None):
        super().__init__()
        self.config, self.operators = config, operators or Operators()
        self.tokens = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.positions = nn.Parameter(torch.empty(config.context, config.width))
        self.blocks = nn.ModuleList(Block(config, self.operators) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self._initialise()

    def _initialise(self):
        """Normal with 0.02; what is added to the stream is divided by the root of how often."""
        for name, p in self.named_parameters():
            if p.ndim == 2:
                onto_stream = name.endswith(("attention_out.weight", "mlp_out.weight"))
                scale = 0.02 / math.sqrt(2 * self.config.layers) if onto_stream else 0.02
                nn.init.normal_(p, 0.0, scale)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def hidden(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """The last layer's output, normalized: shape (B, T, C)."""
        stream_BTC = self.operators.embedding(tokens_BT, self.tokens)
        delta_BTC = self.positions[: tokens_BT.shape[1]].expand_as(stream_BTC)
        for block in self.blocks:
            delta_BTC, stream_BTC = block(delta_BTC, stream_BTC)
        return self.operators.layer_norm(
            delta_BTC + stream_BTC, self.norm.normalized_shape, self.norm.weight, self.norm.bias
        )

    def forward(self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy of the next tokens."""
        return self.loss(self.hidden(tokens_BT), targets_BT)

    def loss(self, hidden_BTC: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        return self.operators.linear_cross_entropy(
            hidden_BTC.flatten(0, 1), self.tokens, targets_BT.flatten()
        )
