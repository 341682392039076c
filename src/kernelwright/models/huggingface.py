"""Maps names of sizes and weights in Hugging Face checkpoints to those of our models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.support.errors import UsageError

from . import gpt2, llama

Document = dict[str, Any]  # config.json

_GELU = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
# settings that our models do not support, with the value that turns each off
_GPT2_FIXED = {"reorder_and_upcast_attn": False, "add_cross_attention": False}
_LLAMA_FIXED = {"hidden_act": "silu", "pretraining_tp": 1}


@dataclass(frozen=True)
class Weight:
    """A parameter of our model, and the tensors of a checkpoint that it consists of.

    Attributes:
        theirs: the names of the tensors, stacked along the first dimension.
        transposed: whether the tensors are (in, out).
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False


def gpt2_config(d: Document) -> gpt2.Config:
    """Our Config for a checkpoint's config.json."""
    _same(d, _GPT2_FIXED)
    activation = d.get("activation_function", "gelu_new")
    if activation not in _GELU:
        raise UsageError(
            f"config.json: activation_function {activation!r} is not one of {', '.join(_GELU)}"
        )
    drops = {d.get(name, 0.1) for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop")}
    if len(drops) > 1:
        raise UsageError("config.json: resid_pdrop, embd_pdrop and attn_pdrop must be equal")
    return gpt2.Config(
        layers=d.get("n_layer", 12),
        heads=d.get("n_head", 12),
        width=d.get("n_embd", 768),
        context=d.get("n_positions", 1024),
        vocabulary=d.get("vocab_size", 50257),
        mlp_width=d.get("n_inner") or 0,
        dropout=drops.pop(),
        gelu=_GELU[activation],
        activation=activation,
        eps=d.get("layer_norm_epsilon", 1e-5),
        tied=d.get("tie_word_embeddings", True),
        scale_attention=d.get("scale_attn_weights", True),
        scale_by_layer=d.get("scale_attn_by_inverse_layer_idx", False),
    )


def gpt2_document(c: gpt2.Config) -> Document:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_embd": c.width,
        "n_positions": c.context,
        "n_ctx": c.context,
        "vocab_size": c.vocabulary,
        "n_inner": c.mlp_width or None,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "activation_function": c.activation or {"tanh": "gelu_new", "none": "gelu"}[c.gelu],
        "layer_norm_epsilon": c.eps,
        "tie_word_embeddings": c.tied,
        "scale_attn_weights": c.scale_attention,
        "scale_attn_by_inverse_layer_idx": c.scale_by_layer,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def gpt2_weights(c: gpt2.Config) -> list[Weight]:
    weights = [
        Weight("tokens", ("transformer.wte.weight",)),
        Weight("positions", ("transformer.wpe.weight",)),
    ]
    layers = {
        "attention_norm": "ln_1", "qkv": "attn.c_attn", "attention_out": "attn.c_proj",
        "mlp_norm": "ln_2", "mlp_in": "mlp.c_fc", "mlp_out": "mlp.c_proj",
    }  # fmt: skip
    for i in range(c.layers):
        for ours, theirs in layers.items():
            for part in ("weight", "bias"):
                transposed = part == "weight" and not theirs.startswith("ln_")
                name = f"transformer.h.{i}.{theirs}.{part}"
                weights.append(Weight(f"blocks.{i}.{ours}.{part}", (name,), transposed))
    weights += [
        Weight(f"norm.{part}", (f"transformer.ln_f.{part}",)) for part in ("weight", "bias")
    ]
    return weights if c.tied else [*weights, Weight("output", ("lm_head.weight",))]


def llama_config(d: Document) -> llama.Config:
    """Our Config for a checkpoint's config.json."""
    _same(d, _LLAMA_FIXED)
    heads = d.get("num_attention_heads", 32)
    # transformers 5 has one dictionary where 4 had two fields
    scaling = d.get("rope_parameters") or d.get("rope_scaling") or {}
    rope = {"rope_theta": d.get("rope_theta", 10000.0), **scaling}
    return llama.Config(
        layers=d.get("num_hidden_layers", 32),
        heads=heads,
        kv_heads=d.get("num_key_value_heads") or heads,
        width=d.get("hidden_size", 4096),
        mlp_width=d.get("intermediate_size", 11008),
        context=d.get("max_position_embeddings", 2048),
        vocabulary=d.get("vocab_size", 32000),
        head_size=d.get("head_dim") or 0,
        dropout=0.0,
        eps=d.get("rms_norm_eps", 1e-6),
        rope_base=float(rope["rope_theta"]),
        rope_scaling=_scaling(rope, d),
        tied=d.get("tie_word_embeddings", False),
        attention_bias=d.get("attention_bias", False),
        mlp_bias=d.get("mlp_bias", False),
        padding=d.get("pad_token_id"),
    )


def _scaling(rope: Document, d: Document) -> llama.RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return llama.RopeScaling("linear", float(rope["factor"]))
    if kind == "llama3":
        return llama.RopeScaling(
            "llama3",
            float(rope["factor"]),
            float(rope["low_freq_factor"]),
            float(rope["high_freq_factor"]),
            rope.get("original_max_position_embeddings") or d["max_position_embeddings"],
        )
    raise UsageError(f"config.json: rope_type {kind!r} is not one of default, linear, llama3")


def llama_document(c: llama.Config) -> Document:
    rope: Document = {"rope_type": "default", "rope_theta": c.rope_base}
    if c.rope_scaling is not None:
        s = c.rope_scaling
        rope |= {"rope_type": s.kind, "factor": s.factor}
        if s.kind == "llama3":
            rope |= {
                "low_freq_factor": s.low,
                "high_freq_factor": s.high,
                "original_max_position_embeddings": s.context,
            }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "hidden_size": c.width,
        "intermediate_size": c.mlp_width,
        "max_position_embeddings": c.context,
        "vocab_size": c.vocabulary,
        "head_dim": c.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": c.eps,
        "rope_parameters": rope,
        "tie_word_embeddings": c.tied,
        "attention_bias": c.attention_bias,
        "mlp_bias": c.mlp_bias,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": c.padding,
    }


def llama_weights(c: llama.Config) -> list[Weight]:
    weights = [Weight("tokens", ("model.embed_tokens.weight",))]
    attention, mlp = (
        ("weight", "bias")[: 1 + c.attention_bias],
        ("weight", "bias")[: 1 + c.mlp_bias],
    )
    for i in range(c.layers):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        weights += [
            Weight(f"{ours}.attention_norm.weight", (f"{theirs}.input_layernorm.weight",)),
            Weight(f"{ours}.mlp_norm.weight", (f"{theirs}.post_attention_layernorm.weight",)),
        ]
        for part in attention:
            stacked = tuple(f"{theirs}.self_attn.{x}_proj.{part}" for x in "qkv")
            weights.append(Weight(f"{ours}.qkv.{part}", stacked))
            weights.append(
                Weight(f"{ours}.attention_out.{part}", (f"{theirs}.self_attn.o_proj.{part}",))
            )
        for part in mlp:
            stacked = tuple(f"{theirs}.mlp.{x}_proj.{part}" for x in ("gate", "up"))
            weights.append(Weight(f"{ours}.gate_up.{part}", stacked))
            weights.append(Weight(f"{ours}.mlp_out.{part}", (f"{theirs}.mlp.down_proj.{part}",)))
    weights.append(Weight("norm.weight", ("model.norm.weight",)))
    return weights if c.tied else [*weights, Weight("output", ("lm_head.weight",))]


def rows(weight: Weight, c: Any) -> list[int]:
    """The number of rows of each of the stacked tensors of a parameter."""
    if weight.ours.endswith((".qkv.weight", ".qkv.bias")) and len(weight.theirs) == 3:
        return [c.heads * c.head_width, *[c.kv_heads * c.head_width] * 2]
    return [c.mlp_width] * 2


def _same(d: Document, fixed: Document) -> None:
    for name, only in fixed.items():
        if d.get(name, only) != only:
            raise UsageError(f"config.json: {name} must be {only!r}, is {d[name]!r}")
