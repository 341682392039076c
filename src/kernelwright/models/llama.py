"""Llama (Touvron et al. 2023; Grattafiori et al. 2024) on Kernelwright's operators, from tokens to
logits or to the loss: RMSNorm, rotary positions, grouped queries, SwiGLU. Fields of its Config make
it a Mistral, Qwen 2, Qwen 3 or Gemma 2.

Letters at the end of a name are its shape: B batch, T tokens, C width, H heads, G heads of keys and
values, D width of a head, F width of the MLP, V vocabulary.
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
from .checks import changed, divides, not_negative, positive, probability
from .language_model import LanguageModel
from .norm import RMSNorm
from .operators import (
    activated_linear,
    add_rms_norm,
    dropout,
    embedding,
    geglu,
    product,
    rms_norm,
    rope,
    swiglu,
)
from .rotary import RopeScaling, angles

ACTIVATIONS = {"silu": swiglu, "gelu_tanh": partial(geglu, approximate="tanh")}


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
        qkv_bias: whether the layer of queries, keys and values has a bias, if the layer after
            attention has none (Qwen 2).
        qk_norm: whether each head of queries and keys is normalized (Qwen 3).
        windows: of each layer: a token attends to itself and the window - 1 tokens before it, with
            0 to all earlier ones; () means 0 in all layers.
        query_scalar: scores are divided by its square root; 0 means D.
        softcap: if above 0, scores become softcap tanh(score / softcap) (Gemma 2).
        logit_softcap: the same for logits.
        activation: of the MLP's gate: "silu" or "gelu_tanh".
        norm_offset: added to the weights of norms; 1 if zero means no scaling (Gemma 2).
        post_norms: whether results of attention and of the MLP are normalized before they are added
            to the residual stream (Gemma 2).
        scaled_embedding: whether embeddings are multiplied by the square root of the width.
        padding: a token whose row of the embedding has no gradient where it is an input.
        family: the `model_type` of the checkpoint as which the model is saved.
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
    qkv_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int, ...] = ()
    query_scalar: int = 0
    softcap: float = 0.0
    logit_softcap: float = 0.0
    activation: str = "silu"
    norm_offset: float = 0.0
    post_norms: bool = False
    scaled_embedding: bool = False
    padding: int | None = None
    family: str = "llama"

    def __post_init__(self):
        positive(self, "layers", "heads", "kv_heads", "width", "mlp_width", "context", "vocabulary")
        divides(self, "kv_heads", "heads")
        if not self.head_size:
            divides(self, "heads", "width")
        if self.head_width % 2:
            raise ValueError(f"head_size: must be even for rotary positions, is {self.head_width}")
        probability(self, "dropout")
        not_negative(self, "query_scalar", "softcap", "logit_softcap")
        if self.windows and (len(self.windows) != self.layers or min(self.windows) < 0):
            raise ValueError(f"windows: must be {self.layers} numbers, none negative")
        if self.dropout and (self.softcap or any(self.windows)):
            raise ValueError("dropout: must be 0 with a softcap or with windows")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation: {self.activation!r} is not one of {', '.join(ACTIVATIONS)}"
            )

    @property
    def head_width(self) -> int:
        return self.head_size or self.width // self.heads

    @property
    def attention_scale(self) -> float:
        return 1 / math.sqrt(self.query_scalar or self.head_width)

    def window(self, layer: int) -> int:
        return self.windows[layer] if self.windows else 0


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
        norm = partial(RMSNorm, eps=config.eps, offset=config.norm_offset)
        qkv_bias = config.attention_bias or config.qkv_bias
        self.attention_norm = norm(C)
        self.qkv = nn.Linear(C, (config.heads + 2 * config.kv_heads) * D, qkv_bias)
        if config.qk_norm:
            self.q_norm, self.k_norm = norm(D), norm(D)
        self.attention_out = nn.Linear(config.heads * D, C, config.attention_bias)
        self.mlp_norm = norm(C)
        self.gate_up = nn.Linear(C, 2 * F, config.mlp_bias)
        self.mlp_out = nn.Linear(F, C, config.mlp_bias)
        if config.post_norms:
            self.attention_post_norm, self.mlp_post_norm = norm(C), norm(C)

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
        if self.config.post_norms:
            delta_BTC = rms_norm(delta_BTC, self.attention_post_norm)
        x_BTC, stream_BTC = add_norm(delta_BTC, stream_BTC, self.mlp_norm)
        delta_BTC = self._mlp(x_BTC)
        if self.config.post_norms:
            delta_BTC = rms_norm(delta_BTC, self.mlp_post_norm)
        return delta_BTC, stream_BTC

    def _attention(self, x_BTC, cos_TD, sin_TD, cache: KeyValues | None) -> torch.Tensor:
        B, T, _ = x_BTC.shape
        config = self.config
        H, G, D = config.heads, config.kv_heads, config.head_width
        qkv_BTC = product(x_BTC, self.qkv)
        q_BTHD, k_BTGD, v_BTGD = (
            part.view(B, T, -1, D) for part in qkv_BTC.split((H * D, G * D, G * D), dim=-1)
        )
        if config.qk_norm:
            q_BTHD, k_BTGD = rms_norm(q_BTHD, self.q_norm), rms_norm(k_BTGD, self.k_norm)
        q_BHTD, k_BGTD, v_BGTD = (t.transpose(1, 2) for t in (q_BTHD, k_BTGD, v_BTGD))
        q_BHTD, k_BGTD = rope(q_BHTD, k_BGTD, cos_TD, sin_TD, rotary_dim=D)
        scale, limits = config.attention_scale, (config.window(self.layer), config.softcap)
        if cache is None:
            p = config.dropout if self.training else 0.0
            y_BHTD = causal_attention(q_BHTD, k_BGTD, v_BGTD, scale, p, *limits)
        else:
            y_BHTD = cache.attend(self.layer, q_BHTD, k_BGTD, v_BGTD, scale, *limits)
        y_BTC = y_BHTD.transpose(1, 2).reshape(B, T, H * D)
        delta_BTC = product(y_BTC, self.attention_out)
        return dropout(delta_BTC, config.dropout, self.training)

    def _mlp(self, x_BTC: torch.Tensor) -> torch.Tensor:
        both_BTF2 = product(x_BTC, self.gate_up)
        parts_BTF = both_BTF2.chunk(2, dim=-1)
        activate = ACTIVATIONS[self.config.activation]
        delta_BTC = activated_linear(activate, parts_BTF, self.mlp_out, self.recompute_activation)
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
        self.config, self.logit_softcap = config, config.logit_softcap
        self.tokens = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = RMSNorm(config.width, config.eps, config.norm_offset)
        if not config.tied:
            self.output = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.initialize()

    def initialize(self) -> None:
        """Draw new weights, and compute the angles of each position."""
        super().initialize()
        self._set_angles()

    def _set_angles(self) -> None:
        config = self.config
        cos_SD, sin_SD = angles(
            config.context, config.head_width, config.rope_base, config.rope_scaling,
            self.tokens.device,
        )  # fmt: skip
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
        if config.scaled_embedding:  # by a number of the model's dtype, as Gemma was trained
            stream_BTC = stream_BTC * stream_BTC.new_full((), math.sqrt(config.width))
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
    delta_BTC: torch.Tensor | None, stream_BTC: torch.Tensor, norm: RMSNorm
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the norm of the sum, the sum). Before the first layer there is nothing to add."""
    if delta_BTC is None:
        return rms_norm(stream_BTC, norm), stream_BTC
    return add_rms_norm(delta_BTC, stream_BTC, norm)
