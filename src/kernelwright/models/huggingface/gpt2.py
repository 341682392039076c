"""GPT-2 in Hugging Face checkpoints."""

from __future__ import annotations

from kernelwright.support.errors import UsageError

from ..gpt2 import Config
from .stored import Document, Weight, same

_GELU = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
# settings that our models do not support, with the value that turns each off
_FIXED = {"reorder_and_upcast_attn": False, "add_cross_attention": False}


def config(d: Document) -> Config:
    """Our Config for a checkpoint's config.json."""
    same(d, _FIXED)
    activation = d.get("activation_function", "gelu_new")
    if activation not in _GELU:
        raise UsageError(
            f"config.json: activation_function {activation!r} is not one of {', '.join(_GELU)}"
        )
    drops = {d.get(name, 0.1) for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop")}
    if len(drops) > 1:
        raise UsageError("config.json: resid_pdrop, embd_pdrop and attn_pdrop must be equal")
    return Config(
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


def document(c: Config) -> Document:
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


def weights(c: Config) -> list[Weight]:
    stored = [
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
                stored.append(Weight(f"blocks.{i}.{ours}.{part}", (name,), transposed))
    stored += [Weight(f"norm.{part}", (f"transformer.ln_f.{part}",)) for part in ("weight", "bias")]
    return stored if c.tied else [*stored, Weight("output", ("lm_head.weight",))]
