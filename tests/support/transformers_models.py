"""Random transformers models, and the folders to which they are saved."""

from __future__ import annotations

import random

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

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


def llama(draw: random.Random):
    """A Llama of random sizes and options."""
    groups = draw.choice((1, 2, 4))
    return LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=draw.choice((1, 2)), num_attention_heads=4, hidden_size=32,
            num_key_value_heads=groups, intermediate_size=draw.choice((24, 56)),
            vocab_size=VOCABULARY, max_position_embeddings=64, head_dim=draw.choice((8, 16)),
            rms_norm_eps=draw.choice((1e-6, 1e-3)), attention_bias=draw.random() < 0.5,
            mlp_bias=draw.random() < 0.5, tie_word_embeddings=draw.random() < 0.5,
            rope_parameters=dict(draw.choice(ROPES)), bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def saved(make, seed: int, folder):
    """A random model, saved to a folder; its weights are so large that each affects results."""
    torch.manual_seed(seed)
    model = make(random.Random(seed)).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2)
    model.save_pretrained(folder)
    return model
