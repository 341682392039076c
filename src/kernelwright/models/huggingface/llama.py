"""Llama, Mistral, Qwen 2, Qwen 3 and Gemma 2 in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from kernelwright.support.errors import UsageError

from ..llama import Config
from ..rotary import RopeScaling
from .stored import Document, Weight, same


@dataclass(frozen=True)
class Family:
    """What one family adds to the sizes that all have.

    Attributes:
        architecture: the class of transformers.
        defaults: what a config.json may leave out.
        fixed: settings that our models do not support, with the value that turns each off.
        read: fields of our Config, from config.json.
        write: the inverse.
    """

    architecture: str
    defaults: Document
    fixed: Document
    read: Callable[[Document], dict[str, Any]]
    write: Callable[[Config], Document]


def _read_llama(d: Document) -> dict[str, Any]:
    return {
        "attention_bias": d.get("attention_bias", False),
        "mlp_bias": d.get("mlp_bias", False),
    }


def _write_llama(c: Config) -> Document:
    return {"hidden_act": "silu", "attention_bias": c.attention_bias, "mlp_bias": c.mlp_bias}


def _read_mistral(d: Document) -> dict[str, Any]:
    window = d["sliding_window"]
    return {"windows": (window,) * d["num_hidden_layers"] if window else ()}


def _write_mistral(c: Config) -> Document:
    return {"hidden_act": "silu", "sliding_window": _largest_window(c)}


def _read_qwen2(d: Document) -> dict[str, Any]:
    return {"qkv_bias": True, "windows": _qwen_windows(d)}


def _write_qwen2(c: Config) -> Document:
    return {"hidden_act": "silu", **_written_windows(c), "use_sliding_window": any(c.windows)}


def _read_qwen3(d: Document) -> dict[str, Any]:
    return {
        "qk_norm": True,
        "attention_bias": d.get("attention_bias", False),
        "windows": _qwen_windows(d),
    }


def _write_qwen3(c: Config) -> Document:
    return {**_write_qwen2(c), "attention_bias": c.attention_bias}


def _read_gemma2(d: Document) -> dict[str, Any]:
    return {
        "attention_bias": d.get("attention_bias", False),
        "windows": _windows(d, lambda layer: layer % 2 == 0),
        "query_scalar": d["query_pre_attn_scalar"],
        "softcap": d["attn_logit_softcapping"] or 0.0,
        "logit_softcap": d["final_logit_softcapping"] or 0.0,
        "activation": "gelu_tanh",
        "norm_offset": 1.0,
        "post_norms": True,
        "scaled_embedding": True,
    }


def _write_gemma2(c: Config) -> Document:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": c.attention_bias,
        "query_pre_attn_scalar": c.query_scalar or c.head_width,
        "attn_logit_softcapping": c.softcap or None,
        "final_logit_softcapping": c.logit_softcap or None,
        **_written_windows(c),
    }


_SILU = {"hidden_act": "silu"}
FAMILIES = {
    "llama": Family(
        "LlamaForCausalLM",
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": None,
            "head_dim": None, "max_position_embeddings": 2048, "tie_word_embeddings": False,
            "pad_token_id": None,
        },
        {**_SILU, "pretraining_tp": 1},
        _read_llama,
        _write_llama,
    ),
    "mistral": Family(
        "MistralForCausalLM",
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": None, "max_position_embeddings": 131072, "tie_word_embeddings": False,
            "pad_token_id": None, "sliding_window": 4096,
        },
        {**_SILU, "layer_types": None},
        _read_mistral,
        _write_mistral,
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        {
            "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "head_dim": None, "max_position_embeddings": 32768, "tie_word_embeddings": False,
            "pad_token_id": None, "use_sliding_window": False, "sliding_window": 4096,
            "max_window_layers": 28, "layer_types": None,
        },
        _SILU,
        _read_qwen2,
        _write_qwen2,
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        {
            "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "head_dim": 128, "max_position_embeddings": 32768, "tie_word_embeddings": False,
            "pad_token_id": None, "use_sliding_window": False, "sliding_window": 4096,
            "max_window_layers": 28, "layer_types": None,
        },
        _SILU,
        _read_qwen3,
        _write_qwen3,
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        {
            "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
            "pad_token_id": 0, "sliding_window": 4096, "layer_types": None,
            "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0, "use_bidirectional_attention": None,
        },
        {"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": None},
        _read_gemma2,
        _write_gemma2,
    ),
}  # fmt: skip


def config(given: Document) -> Config:
    """Our Config for a checkpoint's config.json; its model_type is one of FAMILIES."""
    kind = given["model_type"]
    family = FAMILIES[kind]
    d = {**family.defaults, **given}
    same(d, family.fixed)
    heads = d["num_attention_heads"]
    rope = _rope(d)
    return Config(
        family=kind,
        layers=d["num_hidden_layers"],
        heads=heads,
        kv_heads=d["num_key_value_heads"] or heads,
        width=d["hidden_size"],
        mlp_width=d["intermediate_size"],
        context=d["max_position_embeddings"],
        vocabulary=d["vocab_size"],
        head_size=d["head_dim"] or 0,
        dropout=0.0,
        eps=d.get("rms_norm_eps", 1e-6),
        rope_base=float(rope["rope_theta"]),
        rope_scaling=_scaling(rope, d),
        tied=d["tie_word_embeddings"],
        padding=d["pad_token_id"],
        **family.read(d),
    )


def _rope(d: Document) -> Document:
    # transformers 5 has one dictionary where 4 had two fields; it too prefers the older one
    rope = d.get("rope_scaling") or d.get("rope_parameters") or {}
    if any(isinstance(value, dict) for value in rope.values()):
        raise UsageError("config.json: rope_parameters must be the same for all layers")
    if ({**d, **rope}.get("partial_rotary_factor") or 1.0) != 1.0:
        raise UsageError("config.json: partial_rotary_factor must be 1.0")
    return {"rope_theta": d.get("rope_theta", 10000.0), **rope}


def _scaling(rope: Document, d: Document) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", float(rope["factor"]))
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            float(rope["factor"]),
            float(rope["low_freq_factor"]),
            float(rope["high_freq_factor"]),
            rope.get("original_max_position_embeddings") or d["max_position_embeddings"],
        )
    raise UsageError(f"config.json: rope_type {kind!r} is not one of default, linear, llama3")


def _qwen_windows(d: Document) -> tuple[int, ...]:
    d = d if d["use_sliding_window"] else {**d, "sliding_window": None}
    return _windows(d, lambda layer: layer >= d["max_window_layers"] and d["sliding_window"])


def _windows(d: Document, slides: Callable[[int], Any]) -> tuple[int, ...]:
    """The window of each layer.

    Args:
        slides: whether a layer has a window, if config.json does not list the layers' types.
    """
    names = {True: "sliding_attention", False: "full_attention"}
    layers, window = d["num_hidden_layers"], d["sliding_window"]
    types = d["layer_types"] or [names[bool(slides(layer))] for layer in range(layers)]
    if len(types) != layers:
        raise UsageError(f"config.json: layer_types has {len(types)} entries for {layers} layers")
    if unknown := set(types) - set(names.values()):
        raise UsageError(f"config.json: layer_types has {', '.join(sorted(map(str, unknown)))}")
    if names[True] in types and not window:
        raise UsageError("config.json: layer_types has sliding_attention without sliding_window")
    windows = tuple(window if kind == names[True] else 0 for kind in types)
    return windows if any(windows) else ()


def _written_windows(c: Config) -> Document:
    windows = c.windows or (0,) * c.layers
    return {
        "sliding_window": _largest_window(c),
        "layer_types": ["sliding_attention" if w else "full_attention" for w in windows],
    }


def _largest_window(c: Config) -> int | None:
    return max(c.windows, default=0) or None


def document(c: Config) -> Document:
    """The config.json of a model of FAMILIES[c.family].

    Raises:
        UsageError: such checkpoints cannot express a field of the Config.
    """
    if c.family not in FAMILIES:
        raise UsageError(f"family: {c.family!r} is not one of {', '.join(FAMILIES)}")
    family = FAMILIES[c.family]
    written: Document = {
        "architectures": [family.architecture],
        "model_type": c.family,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "hidden_size": c.width,
        "intermediate_size": c.mlp_width,
        "max_position_embeddings": c.context,
        "vocab_size": c.vocabulary,
        "rms_norm_eps": c.eps,
        "rope_parameters": _written_rope(c),
        "tie_word_embeddings": c.tied,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": c.padding,
        **family.write(c),
    }
    if c.head_size or family.defaults["head_dim"]:
        written["head_dim"] = c.head_width
    _check_written(c, config(written))
    return written


def _written_rope(c: Config) -> Document:
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
    return rope


def _check_written(c: Config, again: Config) -> None:
    """Raise UsageError if a config.json would be read as another Config."""
    wanted, again = (
        replace(
            x,
            dropout=0.0,  # is not written
            head_size=x.head_width,
            query_scalar=x.query_scalar or x.head_width,
            windows=x.windows if any(x.windows) else (),
        )
        for x in (c, again)
    )
    lost = [f.name for f in fields(c) if getattr(wanted, f.name) != getattr(again, f.name)]
    if lost:
        raise UsageError(f"a checkpoint of {c.family} cannot hold the model's {', '.join(lost)}")


def weights(c: Config) -> list[Weight]:
    stored = [Weight("tokens", ("model.embed_tokens.weight",))]
    for layer in range(c.layers):
        stored += _block(c, f"blocks.{layer}", f"model.layers.{layer}")
    stored.append(Weight("norm.weight", ("model.norm.weight",)))
    return stored if c.tied else [*stored, Weight("output", ("lm_head.weight",))]


def _block(c: Config, ours: str, theirs: str) -> list[Weight]:
    heads = (c.heads * c.head_width, *[c.kv_heads * c.head_width] * 2)
    qkv = tuple(f"{theirs}.self_attn.{x}_proj" for x in "qkv")
    gate_up = tuple(f"{theirs}.mlp.{x}_proj" for x in ("gate", "up"))
    layers = (
        ("qkv", qkv, heads, c.attention_bias or c.qkv_bias),
        ("attention_out", (f"{theirs}.self_attn.o_proj",), (), c.attention_bias),
        ("gate_up", gate_up, (c.mlp_width,) * 2, c.mlp_bias),
        ("mlp_out", (f"{theirs}.mlp.down_proj",), (), c.mlp_bias),
    )
    stored = [
        Weight(f"{ours}.{name}.{part}", tuple(f"{x}.{part}" for x in stack), rows=rows)
        for name, stack, rows, bias in layers
        for part in ("weight", "bias")[: 1 + bias]
    ]
    norms = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    if c.post_norms:
        norms |= {
            "attention_post_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "mlp_post_norm": "post_feedforward_layernorm",
        }
    if c.qk_norm:
        norms |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
    return stored + [
        Weight(f"{ours}.{a}.weight", (f"{theirs}.{b}.weight",)) for a, b in norms.items()
    ]
