"""NanoChat and BLT, small and random, and the logits of a model."""

import torch
import transformers

from support.patched_models import VOCABULARY, batch

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip


def nanochat():
    torch.manual_seed(0)
    config = transformers.NanoChatConfig(
        **SIZES, num_key_value_heads=2, vocab_size=VOCABULARY, pad_token_id=0
    )
    return larger(transformers.NanoChatForCausalLM(config).eval())


def blt():
    torch.manual_seed(0)
    local = {**SIZES, "num_hidden_layers": 1, "vocab_size": 260, "num_key_value_heads": 4}
    coder = {**local, "cross_attn_k": 2, "hidden_size_global": 64}
    config = transformers.BltConfig(
        vocab_size=260,
        max_position_embeddings=64,
        patching_threshold=0.5,
        cross_attn_k=2,
        encoder_hash_byte_group_size=[2, 3],
        encoder_hash_byte_group_vocab=64,
        patcher_config=local,
        encoder_config=coder,
        decoder_config=coder,
        global_config={**local, "hidden_size": 64},
    )
    return larger(transformers.BltForCausalLM(config).eval())


def larger(model):
    """The model with larger weights, so that logits differ between positions."""
    with torch.no_grad():
        for p in model.parameters():
            p *= 4.0
    return model


def logits(model):
    with torch.no_grad():
        return model(input_ids=batch()[0], use_cache=False).logits
