"""GPT-2 (Radford et al. 2019) on Kernelwright's operators, from tokens to logits or to the loss.

Letters at the end of a name are its shape: B batch, T tokens, C width, H heads, D = C / H width of
a head, F width of the MLP, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from .attention import causal_attention
from .cache import KeyValues
from .checks import changed, divides, positive, probability
from .language_model import LanguageModel
from .operators import (
    activated_linear,
    add_layer_norm,
    dropout,
    embedding,
    gelu_after_linear,
    linear,
    linear_before_gelu,
    linear_gelu,
)


@dataclass(frozen=True)
class Config:
    """Sizes of a GPT-2; the 124M model by default, its vocabulary padded to a multiple of 128.

    Attributes:
        context: the maximum number of tokens in a sequence.
        mlp_width: F; 0 means four times the width.
        dropout: probability, of attention weights and of everything added to the residual stream.
        gelu: "tanh" for the approximation by tanh, "none" for the error function.
        activation: the name of this function in the checkpoint that was read, for saving it again.
        eps: the norms' eps.
        tied: whether the output layer is the token embedding.
        scale_attention: whether scores are divided by the square root of D.
        scale_by_layer: whether scores of layer i are also divided by i + 1.
    """

    layers: int = 12
    heads: int = 12
    width: int = 768
    context: int = 1024
    vocabulary: int = 50304
    mlp_width: int = 0
    dropout: float = 0.0
    gelu: str = "tanh"
    activation: str = ""
    eps: float = 1e-5
    tied: bool = True
    scale_attention: bool = True
    scale_by_layer: bool = False

    def __post_init__(self):
        positive(self, "layers", "heads", "width", "context", "vocabulary")
        divides(self, "heads", "width")
        probability(self, "dropout")
        if self.gelu not in ("tanh", "none"):
            raise ValueError(f'gelu: must be "tanh" or "none", is {self.gelu!r}')

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def kv_heads(self) -> int:
        return self.heads

    @property
    def hidden(self) -> int:
        """F."""
        return self.mlp_width or 4 * self.width

    def attention_scale(self, layer: int) -> float:
        scale = 1 / math.sqrt(self.head_width) if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale


PRESETS = {
    "gpt2-tiny": Config(layers=4, heads=4, width=128, context=64, vocabulary=256),
    "gpt2-mini": Config(layers=6, heads=6, width=384, context=256, vocabulary=256, dropout=0.2),
    "gpt2-124m": Config(),
    "gpt2-350m": Config(layers=24, heads=16, width=1024),
    "gpt2-774m": Config(layers=36, heads=20, width=1280),
    "gpt2-1.5b": Config(layers=48, heads=25, width=1600),
}


def config(preset: str, **changes: Any) -> Config:
    """A preset with some of its fields changed."""
    return changed(PRESETS[preset], f"{preset}: a GPT-2", changes)


class Block(nn.Module):
    """Attention, then an MLP. Each result is added to the residual stream together with the norm
    that follows, so a block takes and returns (the summand still to be added, the stream)."""

    recompute_activation = False  # set by train/recompute.py

    def __init__(self, config: Config, layer: int):
        super().__init__()
        self.config, self.layer = config, layer
        C, F = config.width, config.hidden
        self.attention_norm = nn.LayerNorm(C, config.eps)
        self.qkv = nn.Linear(C, 3 * C)
        self.attention_out = nn.Linear(C, C)
        self.mlp_norm = nn.LayerNorm(C, config.eps)
        self.mlp_in = nn.Linear(C, F)
        self.mlp_out = nn.Linear(F, C)

    def forward(
        self, delta_BTC: torch.Tensor, stream_BTC: torch.Tensor, cache: KeyValues | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x_BTC, stream_BTC = add_layer_norm(delta_BTC, stream_BTC, self.attention_norm)
        delta_BTC = self._attention(x_BTC, cache)
        x_BTC, stream_BTC = add_layer_norm(delta_BTC, stream_BTC, self.mlp_norm)
        return self._mlp(x_BTC), stream_BTC

    def _attention(self, x_BTC: torch.Tensor, cache: KeyValues | None) -> torch.Tensor:
        B, T, C = x_BTC.shape
        config = self.config
        qkv_BTC3 = linear(x_BTC, self.qkv.weight, self.qkv.bias)
        q_BHTD, k_BHTD, v_BHTD = (
            part_BTC.view(B, T, config.heads, config.head_width).transpose(1, 2)
            for part_BTC in qkv_BTC3.split(C, dim=-1)
        )
        scale = config.attention_scale(self.layer)
        if cache is None:
            p = config.dropout if self.training else 0.0
            y_BHTD = causal_attention(q_BHTD, k_BHTD, v_BHTD, scale, p)
        else:
            y_BHTD = cache.attend(self.layer, q_BHTD, k_BHTD, v_BHTD, scale)
        y_BTC = y_BHTD.transpose(1, 2).reshape(B, T, C)
        delta_BTC = linear(y_BTC, self.attention_out.weight, self.attention_out.bias)
        return dropout(delta_BTC, config.dropout, self.training)

    def _mlp(self, x_BTC: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            kind = self.config.gelu
            hidden_BTF = linear_gelu(x_BTC, self.mlp_in.weight, self.mlp_in.bias, kind)
            delta_BTC = linear(hidden_BTF, self.mlp_out.weight, self.mlp_out.bias)
            return dropout(delta_BTC, self.config.dropout, self.training)
        z_BTF = linear_before_gelu(x_BTC, self.mlp_in.weight, self.mlp_in.bias)
        gelu = partial(gelu_after_linear, approximate=self.config.gelu)
        delta_BTC = activated_linear(
            gelu, (z_BTF, self.mlp_in.bias), self.mlp_out, self.recompute_activation
        )
        return dropout(delta_BTC, self.config.dropout, self.training)


class Model(LanguageModel):
    """GPT-2: `model(tokens)` gives logits, `model(tokens, targets)` the loss.

    Args:
        config: sizes. New weights are normal with a standard deviation of 0.02; those of layers
            whose result is added to the residual stream, divided by sqrt(2 layers).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.tokens = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.positions = nn.Parameter(torch.empty(config.context, config.width))
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.eps)
        if not config.tied:
            self.output = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.initialize()

    def hidden(self, tokens_BT: torch.Tensor, cache: KeyValues | None = None) -> torch.Tensor:
        """The last layer's result, normalized: (B, T, C)."""
        config = self.config
        T = tokens_BT.shape[1]
        stream_BTC = embedding(tokens_BT, self.tokens)
        if cache is not None:
            delta_BTC = embedding(cache.positions(T), self.positions)
        else:
            self.check_length(T)
            delta_BTC = self.positions[:T].expand_as(stream_BTC)
        if config.dropout and self.training:
            stream_BTC = dropout(stream_BTC + delta_BTC, config.dropout)
            delta_BTC = torch.zeros_like(stream_BTC)
        for block in self.blocks:
            delta_BTC, stream_BTC = block(delta_BTC, stream_BTC, cache)
        return add_layer_norm(delta_BTC, stream_BTC, self.norm)[0]
