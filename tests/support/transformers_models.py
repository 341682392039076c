"""Random transformers models, and the folders to which they are saved."""

from __future__ import annotations

import copy
import random
from functools import partial

import torch
from torch.overrides import TorchFunctionMode
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 61
ROPES = (
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
    {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
    },
)  # fmt: skip


def gpt2(draw: random.Random):
    """A GPT-2 of random sizes and options."""
    heads = draw.choice((1, 2, 4))
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=draw.choice((1, 2)), n_head=heads, n_embd=heads * draw.choice((4, 8)),
            n_positions=draw.choice((32, 48)), vocab_size=VOCABULARY,
            n_inner=draw.choice((None, 40)), layer_norm_epsilon=draw.choice((1e-5, 1e-3)),
            activation_function=draw.choice(("gelu", "gelu_new", "gelu_pytorch_tanh")),
            tie_word_embeddings=draw.random() < 0.5, scale_attn_weights=draw.random() < 0.7,
            scale_attn_by_inverse_layer_idx=draw.random() < 0.5,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def _sizes(draw: random.Random) -> dict:
    """Random sizes that all models like Llama have."""
    return {
        "num_hidden_layers": draw.choice((1, 2, 3)), "num_attention_heads": 4,
        "hidden_size": draw.choice((32, 48)), "num_key_value_heads": draw.choice((1, 2, 4)),
        "intermediate_size": draw.choice((24, 56)), "vocab_size": VOCABULARY,
        "max_position_embeddings": 64, "rms_norm_eps": draw.choice((1e-6, 1e-3)),
        "tie_word_embeddings": draw.random() < 0.5, "rope_parameters": dict(draw.choice(ROPES)),
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip


def llama(draw: random.Random):
    """A Llama of random sizes and options."""
    return LlamaForCausalLM(
        LlamaConfig(
            **_sizes(draw), head_dim=draw.choice((8, 16)), attention_bias=draw.random() < 0.5,
            mlp_bias=draw.random() < 0.5,
        )
    )  # fmt: skip


def mistral(draw: random.Random):
    """A Mistral of random sizes and options; most windows are shorter than the tests' rows."""
    window = draw.choice((None, 1, 3, 8, 100))
    return MistralForCausalLM(
        MistralConfig(**_sizes(draw), head_dim=draw.choice((None, 10)), sliding_window=window)
    )


def qwen2(draw: random.Random):
    """A Qwen 2 of random sizes and options."""
    return Qwen2ForCausalLM(Qwen2Config(**_sizes(draw), **_qwen_windows(draw)))


def qwen3(draw: random.Random):
    """A Qwen 3 of random sizes and options."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            **_sizes(draw), **_qwen_windows(draw), head_dim=draw.choice((8, 20)),
            attention_bias=draw.random() < 0.5,
        )
    )  # fmt: skip


def _qwen_windows(draw: random.Random) -> dict:
    return {
        "use_sliding_window": draw.random() < 0.7, "sliding_window": draw.choice((2, 5, 9)),
        "max_window_layers": draw.choice((0, 1)),
    }  # fmt: skip


def gemma2(draw: random.Random):
    """A Gemma 2 of random sizes and options."""
    config = Gemma2Config(
        **_sizes(draw), head_dim=draw.choice((8, 20)), sliding_window=draw.choice((2, 5, 9)),
        query_pre_attn_scalar=draw.choice((8, 24)), attention_bias=draw.random() < 0.5,
        attn_logit_softcapping=draw.choice((None, 1.5, 20.0)),
        final_logit_softcapping=draw.choice((None, 2.0, 30.0)),
    )  # fmt: skip
    # its other attention leaves out the softcap
    return Gemma2ForCausalLM._from_config(config, attn_implementation="eager")


LLAMA_LIKE = (llama, mistral, qwen2, qwen3, gemma2)
FAMILIES = (gpt2, *LLAMA_LIKE)


class _Wide(TorchFunctionMode):
    """Softmax in float64, where transformers' attention asks for float32."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.nn.functional.softmax and args[0].dtype == torch.float64:
            kwargs = {**kwargs, "dtype": None}
        return func(*args, **kwargs)


class Exact(torch.nn.Module):
    """A model of transformers in float64, without the casts to float32 within it."""

    def __init__(self, model):
        super().__init__()
        self.model = copy.deepcopy(model).double()
        for module in self.model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = partial(_rms_norm, module)

    def forward(self, *args, **kwargs):
        with _Wide():
            return self.model(*args, **kwargs)


def _rms_norm(norm, x):
    zero_centred = type(norm).__name__.startswith("Gemma")
    eps = norm.eps if zero_centred else norm.variance_epsilon
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (norm.weight + zero_centred)


def saved(make, seed: int, folder):
    """A random model, saved to a folder; its weights are so large that each affects results."""
    torch.manual_seed(seed)
    model = make(random.Random(seed)).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2)
    model.save_pretrained(folder)
    return model
