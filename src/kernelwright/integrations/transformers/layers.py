"""Replacements of the forwards of decoder layers and vision blocks: each norm adds its residual.

A layer adds its attention's result to the residual stream and normalizes the sum for its MLP. The
norm is called with both (norms.py), so that the sum and the norm are one pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import norms
from .binding import untouched
from .norm_recompute import noted, remade

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Layer:
    """The order of a layer's children, each given by the name of its attribute.

    Attributes:
        before, attention: the norm before the attention, and the attention.
        after: the modules that the attention's result passes through before it is added.
        norm, mlp: the norm of the sum, and the MLP that takes its result.
        behind: the modules that the MLP's result passes through before it is added.
        multiplier: the attribute by which both results are multiplied, or "".
        only_named: whether the attention is passed only the arguments that the layer names.
        pairs: children whose results are tuples, of which the first element is used.
    """

    before: str = "input_layernorm"
    attention: str = "self_attn"
    after: tuple[str, ...] = ()
    norm: str = "post_attention_layernorm"
    mlp: str = "mlp"
    behind: tuple[str, ...] = ()
    multiplier: str = ""
    only_named: bool = False
    pairs: tuple[str, ...] = ("self_attn",)


def forward_of(layer: Layer, own: Forward) -> Forward:
    """The replacement of a layer's own forward; it passes the same arguments to the attention."""
    parameters = tuple(inspect.signature(own).parameters.values())[2:]
    names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    defaults = {
        p.name: p.default for p in parameters if p.name in names and p.default is not p.empty
    }

    after, behind = layer.after or layer.multiplier, layer.behind or layer.multiplier

    def forward(self, hidden_states, *args, only_causal=False, **kwargs):
        given = defaults | dict(zip(names, args, strict=False)) | kwargs
        residual, attention = hidden_states, getattr(self, layer.attention)
        if "attention_mask" in given:
            mask = given["attention_mask"]
            given["attention_mask"] = masked(attention, residual, mask, only_causal)
        if layer.only_named:
            given = {name: given[name] for name in names if name in given}
        norm = getattr(self, layer.before)
        normed = noted(norm, residual)
        with remade(norm, normed):
            attended = attention(hidden_states=normed, **given)
        del normed
        hidden_states = first(attended)
        if after:
            hidden_states = _through(self, layer.after, hidden_states, layer.multiplier)
        norm = getattr(self, layer.norm)
        hidden_states, residual = add_norm(norm, hidden_states, residual)
        with remade(norm, hidden_states):
            hidden_states = first(getattr(self, layer.mlp)(hidden_states))
        if behind:
            hidden_states = _through(self, layer.behind, hidden_states, layer.multiplier)
        return residual + hidden_states

    return forward


def first(result):
    return result[0] if isinstance(result, tuple) else result


def _through(module, names, hidden_states, multiplier):
    for name in names:
        hidden_states = getattr(module, name)(hidden_states)
    return hidden_states * getattr(module, multiplier) if multiplier else hidden_states


def add_norm(norm, x, residual):
    """The norm of the sum, and the sum; in one pass if nothing else sees the call of the norm."""
    if untouched(norm, norms.FORWARDS):
        return noted(norm, x, residual)
    residual = residual + x
    return noted(norm, residual), residual


def masked(attention, hidden_states, attention_mask, only_causal):
    """The mask that attention needs: none if it is only causal and no window is shorter than the
    sequence."""
    if not only_causal:
        return attention_mask
    window = getattr(attention.config, "sliding_window", None)
    window = getattr(attention, "sliding_window", window)  # the layer's own window, or the model's
    return None if window is None or hidden_states.shape[1] <= window else attention_mask


def gpt2_layer(
    self,
    hidden_states,
    past_key_values=None,
    attention_mask=None,
    encoder_hidden_states=None,
    encoder_attention_mask=None,
    use_cache=False,
    only_causal=False,
    **kwargs,
):
    residual = hidden_states
    hidden_states, _ = self.attn(
        self.ln_1(hidden_states),
        past_key_values=past_key_values,
        attention_mask=masked(self.attn, residual, attention_mask, only_causal),
        use_cache=use_cache,
        **kwargs,
    )
    if encoder_hidden_states is not None:
        hidden_states, residual = add_norm(self.ln_cross_attn, hidden_states, residual)
        hidden_states, _ = self.crossattention(
            hidden_states,
            past_key_values=past_key_values,
            attention_mask=attention_mask,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
        )
    hidden_states, residual = add_norm(self.ln_2, hidden_states, residual)
    return residual + self.mlp(hidden_states)


def llama4_layer(
    self, hidden_states, attention_mask=None, position_ids=None, past_key_values=None,
    use_cache=False, position_embeddings=None, **kwargs,
):  # fmt: skip
    residual = hidden_states
    hidden_states, _ = self.self_attn(
        hidden_states=self.input_layernorm(hidden_states),
        position_embeddings=position_embeddings,
        attention_mask=attention_mask,
        past_key_values=past_key_values,
        use_cache=use_cache,
        **kwargs,
    )
    hidden_states, residual = add_norm(self.post_attention_layernorm, hidden_states, residual)
    hidden_states = first(self.feed_forward(hidden_states))
    return residual + hidden_states.view(residual.shape)


def gemma4_layer(
    self, hidden_states, per_layer_input=None, shared_kv_states=None, position_embeddings=None,
    attention_mask=None, position_ids=None, past_key_values=None, **kwargs,
):  # fmt: skip
    residual = hidden_states
    hidden_states, _ = self.self_attn(
        hidden_states=self.input_layernorm(hidden_states),
        position_embeddings=position_embeddings,
        attention_mask=attention_mask,
        shared_kv_states=shared_kv_states,
        position_ids=position_ids,
        past_key_values=past_key_values,
        **kwargs,
    )
    hidden_states = self.post_attention_layernorm(hidden_states)
    hidden_states, residual = add_norm(self.pre_feedforward_layernorm, hidden_states, residual)
    hidden_states = self.mlp(hidden_states)
    if self.enable_moe_block:
        hidden_states = self.post_feedforward_layernorm_1(hidden_states) + _experts(self, residual)
    hidden_states = residual + self.post_feedforward_layernorm(hidden_states)
    if self.hidden_size_per_layer_input:
        gate = self.act_fn(self.per_layer_input_gate(hidden_states))
        more = self.per_layer_projection(gate * per_layer_input)
        hidden_states = hidden_states + self.post_per_layer_input_norm(more)
    return hidden_states * self.layer_scalar


def _experts(self, residual):
    """Gemma 4's experts, which run in parallel with the MLP."""
    tokens = residual.reshape(-1, residual.shape[-1])
    _, weights, chosen = self.router(tokens)
    mixed = self.experts(self.pre_feedforward_layernorm_2(tokens), chosen, weights)
    return self.post_feedforward_layernorm_2(mixed.reshape(residual.shape))


# transformers' class to the order of its children
LAYERS: dict[str, Layer] = {
    "llama.LlamaDecoderLayer": Layer(),
    "mixtral.MixtralDecoderLayer": Layer(),
    "moonshine.MoonshineEncoderLayer": Layer(),
    "nemotron.NemotronDecoderLayer": Layer(only_named=True),
    "gpt_oss.GptOssDecoderLayer": Layer(pairs=("self_attn", "mlp")),
    "granite.GraniteDecoderLayer": Layer(multiplier="residual_multiplier"),
    "phi3.Phi3DecoderLayer": Layer(after=("resid_attn_dropout",), behind=("resid_mlp_dropout",)),
    "gemma2.Gemma2DecoderLayer": Layer(
        after=("post_attention_layernorm",),
        norm="pre_feedforward_layernorm",
        behind=("post_feedforward_layernorm",),
    ),
    "glm4.Glm4DecoderLayer": Layer(
        after=("post_self_attn_layernorm",), behind=("post_mlp_layernorm",)
    ),
    "glm4v.Glm4vTextDecoderLayer": Layer(
        after=("post_self_attn_layernorm",), behind=("post_mlp_layernorm",)
    ),
    "glm4v.Glm4vVisionBlock": Layer(before="norm1", attention="attn", norm="norm2", pairs=()),
    "clip.CLIPEncoderLayer": Layer(before="layer_norm1", norm="layer_norm2"),
}
WRITTEN: dict[str, tuple[Forward, Layer]] = {
    "gpt2.GPT2Block": (gpt2_layer, Layer(norm="ln_2", pairs=("attn", "crossattention"))),
    "llama4.Llama4TextDecoderLayer": (llama4_layer, Layer()),
    "gemma4.Gemma4TextDecoderLayer": (gemma4_layer, Layer(norm="pre_feedforward_layernorm")),
}
