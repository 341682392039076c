"""Llama (Touvron et al. 2023; Grattafiori et al. 2024) on Kernelwright's operators, from tokens to
logits or to the loss: RMSNorm, rotary positions, grouped queries, SwiGLU.

Letters at the end of a name are its shape: B batch, T tokens, C width, H heads, G heads of keys and
values, D width of a head, F width of the MLP, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .attention import causal_attention
from .cache import KeyValues
from .checks import changed, divides, positive, probability
from .language_model import LanguageModel
from .operators import (
    activated_linear,
    add_rms_norm,
    dropout,
    embedding,
    linear,
    rms_norm,
    rope,
    swiglu,
)


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


@dataclass(frozen=True)
class Config:
    """Sizes of a Llama; 124M parameters by default.

    Attributes:
        kv_heads: G; each is shared by heads / kv_heads of the H heads.
        head_size: D; 0 means width / heads.
        context: the maximum number of tokens in a sequence.
        dropout: probability, of attention weights and of everything added to the residual stream.
        rope_base: the base of the rotary frequencies; `rope_scaling` stretches them.
        tied: whether the output layer is the token embedding.
        attention_bias, mlp_bias: whether those layers have a bias.
        padding: a token whose row of the embedding has no gradient where it is an input.
    """

    layers: int = 12
    heads: int = 12
    kv_heads: int = 4
    width: int = 768
    mlp_width: int = 2048
    context: int = 1024
    vocabulary: int = 50304
    head_size: int = 0
    dropout: float = 0.0
    eps: float = 1e-5
    rope_base: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = True
    attention_bias: bool = False
    mlp_bias: bool = False
    padding: int | None = None

    def __post_init__(self):
        positive(self, "layers", "heads", "kv_heads", "width", "mlp_width", "context", "vocabulary")
        divides(self, "kv_heads", "heads")
        if not self.head_size:
            divides(self, "heads", "width")
        if self.head_width % 2:
            raise ValueError(f"head_size: must be even for rotary positions, is {self.head_width}")
        probability(self, "dropout")

    @property
    def head_width(self) -> int:
        return self.head_size or self.width // self.heads


PRESETS = {
    "llama-tiny": Config(
        layers=4, heads=4, kv_heads=2, width=128, mlp_width=344, context=64, vocabulary=256
    ),
    "llama-mini": Config(
        layers=6, heads=6, kv_heads=2, width=384, mlp_width=1024, context=256, vocabulary=256,
        dropout=0.2,
    ),
    "llama-124m": Config(),
    "llama-350m": Config(layers=24, heads=16, kv_heads=8, width=1024, mlp_width=2816),
    "llama-1.2b": Config(
        layers=16, heads=32, kv_heads=8, width=2048, mlp_width=8192, context=8192,
        vocabulary=128256, rope_base=500000.0,
    ),
}  # fmt: skip


def config(preset: str, **changes: Any) -> Config:
    """A preset with some of its fields changed."""
    return changed(PRESETS[preset], f"{preset}: a Llama", changes)


class Block(nn.Module):
    """Attention, then an MLP. Each result is added to the residual stream together with the norm
    that follows, so a block takes and returns (the summand still to be added, the stream)."""

    recompute_activation = False  # set by train/recompute.py

    def __init__(self, config: Config, layer: int):
        super().__init__()
        self.config, self.layer = config, layer
        C, F, D = config.width, config.mlp_width, config.head_width
        self.attention_norm = nn.RMSNorm(C, config.eps)
        self.qkv = nn.Linear(C, (config.heads + 2 * config.kv_heads) * D, config.attention_bias)
        self.attention_out = nn.Linear(config.heads * D, C, config.attention_bias)
        self.mlp_norm = nn.RMSNorm(C, config.eps)
        self.gate_up = nn.Linear(C, 2 * F, config.mlp_bias)
        self.mlp_out = nn.Linear(F, C, config.mlp_bias)

    def forward(
        self,
        delta_BTC: torch.Tensor | None,
        stream_BTC: torch.Tensor,
        cos_TD: torch.Tensor,
        sin_TD: torch.Tensor,
        cache: KeyValues | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x_BTC, stream_BTC = add_norm(delta_BTC, stream_BTC, self.attention_norm)
        delta_BTC = self._attention(x_BTC, cos_TD, sin_TD, cache)
        x_BTC, stream_BTC = add_norm(delta_BTC, stream_BTC, self.mlp_norm)
        return self._mlp(x_BTC), stream_BTC

    def _attention(self, x_BTC, cos_TD, sin_TD, cache: KeyValues | None) -> torch.Tensor:
        B, T, _ = x_BTC.shape
        config = self.config
        H, G, D = config.heads, config.kv_heads, config.head_width
        qkv_BTC = linear(x_BTC, self.qkv.weight, self.qkv.bias)
        q_BHTD, k_BGTD, v_BGTD = (
            part.view(B, T, -1, D).transpose(1, 2)
            for part in qkv_BTC.split((H * D, G * D, G * D), dim=-1)
        )
        q_BHTD, k_BGTD = rope(q_BHTD, k_BGTD, cos_TD, sin_TD, rotary_dim=D)
        scale = 1 / math.sqrt(D)
        if cache is None:
            p = config.dropout if self.training else 0.0
            y_BHTD = causal_attention(q_BHTD, k_BGTD, v_BGTD, scale, p)
        else:
            y_BHTD = cache.attend(self.layer, q_BHTD, k_BGTD, v_BGTD, scale)
        y_BTC = y_BHTD.transpose(1, 2).reshape(B, T, H * D)
        delta_BTC = linear(y_BTC, self.attention_out.weight, self.attention_out.bias)
        return dropout(delta_BTC, config.dropout, self.training)

    def _mlp(self, x_BTC: torch.Tensor) -> torch.Tensor:
        both_BTF2 = linear(x_BTC, self.gate_up.weight, self.gate_up.bias)
        parts_BTF = both_BTF2.chunk(2, dim=-1)
        delta_BTC = activated_linear(swiglu, parts_BTF, self.mlp_out, self.recompute_activation)
        return dropout(delta_BTC, self.config.dropout, self.training)


class Model(LanguageModel):
    """Llama: `model(tokens)` gives logits, `model(tokens, targets)` the loss.

    Args:
        config: sizes. New weights are normal with a standard deviation of 0.02; those of layers
            whose result is added to the residual stream, divided by sqrt(2 layers).
    """

    cos_SD: torch.Tensor
    sin_SD: torch.Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.tokens = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.RMSNorm(config.width, config.eps)
        if not config.tied:
            self.output = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.initialize()

    def initialize(self) -> None:
        """Draw new weights, and compute the angles of each position."""
        super().initialize()
        self._set_angles()

    def _set_angles(self) -> None:
        cos_SD, sin_SD = angles(self.config, self.tokens.device)
        self.register_buffer("cos_SD", cos_SD, persistent=False)
        self.register_buffer("sin_SD", sin_SD, persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._buffers.clear()
        super()._apply(fn, recurse)
        self._set_angles()  # on the parameters' device, but always float32
        return self

    def hidden(self, tokens_BT: torch.Tensor, cache: KeyValues | None = None) -> torch.Tensor:
        """The last layer's result, normalized: (B, T, C)."""
        config = self.config
        T = tokens_BT.shape[1]
        stream_BTC = embedding(tokens_BT, self.tokens, config.padding)
        if cache is not None:
            positions_BT = cache.positions(T)
            cos_TD, sin_TD = self.cos_SD[positions_BT], self.sin_SD[positions_BT]
        else:
            self.check_length(T)
            cos_TD, sin_TD = self.cos_SD[:T], self.sin_SD[:T]
        delta_BTC = None
        if config.dropout and self.training:
            stream_BTC = dropout(stream_BTC, config.dropout)
        for block in self.blocks:
            delta_BTC, stream_BTC = block(delta_BTC, stream_BTC, cos_TD, sin_TD, cache)
        return add_norm(delta_BTC, stream_BTC, self.norm)[0]


def add_norm(
    delta_BTC: torch.Tensor | None, stream_BTC: torch.Tensor, norm: nn.RMSNorm
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the norm of the sum, the sum). Before the first layer there is nothing to add."""
    if delta_BTC is None:
        return rms_norm(stream_BTC, norm), stream_BTC
    return add_rms_norm(delta_BTC, stream_BTC, norm)


def angles(config: Config, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin) of each position and pair of dimensions, float32, (context, D / 2)."""
    D = config.head_width
    powers = torch.arange(0, D, 2, dtype=torch.int64, device=device).float() / D
    frequencies = _scaled(1.0 / config.rope_base**powers, config.rope_scaling)
    positions = torch.arange(config.context, device=device).float()
    angles_SD = torch.outer(positions, frequencies)
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
