"""Small random transformers models of each supported family, and a step of training."""

import torch
import transformers as hf
from torch.overrides import TorchFunctionMode

import kernelwright as kw

VOCABULARY = 96
_NAMES = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": VOCABULARY}
_SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, **_NAMES,
}  # fmt: skip
_WINDOW = {**_SIZES, "sliding_window": 8}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **_NAMES}
_NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
FAMILIES = {
    "Llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**_SIZES)),
    "Qwen 2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**_WINDOW, use_sliding_window=True)),
    "Qwen 3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**_WINDOW)),
    "Mistral": (hf.MistralForCausalLM, hf.MistralConfig(**_WINDOW)),
    "Gemma": (hf.GemmaForCausalLM, hf.GemmaConfig(**_SIZES)),
    "Gemma 2": (hf.Gemma2ForCausalLM, hf.Gemma2Config(**_WINDOW)),
    "Gemma 3": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**_WINDOW)),
    "GPT-2": (hf.GPT2LMHeadModel, hf.GPT2Config(**_GPT2, **_NO_DROPOUT)),
}
# further known families, with other norms, ropes, MLPs, layers and heads
_EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "n_routed_experts": 4, "n_shared_experts": 1,
}  # fmt: skip
_LLAMA4 = {"intermediate_size_mlp": 48, "moe_layers": [1], "attention_chunk_size": 16}
_GEMMA4 = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY,
           "num_kv_shared_layers": 0, "global_head_dim": 8}  # fmt: skip
_GRANITE = {"logits_scaling": 6.0, "residual_multiplier": 0.7, "embedding_multiplier": 3.0}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
           "v_head_dim": 8, "head_dim": 8}  # fmt: skip
_HEADS = {"num_key_value_heads": 4}
_DEEPSEEK3 = {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_TEXT = {**_SIZES, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2],
                                       "rope_theta": 1e4}}  # fmt: skip
_VISION = {
    "hidden_size": 32, "intermediate_size": 48, "depth": 2, "num_heads": 4, "patch_size": 4,
    "image_size": 16, "out_hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
}  # fmt: skip
_IMAGES = {
    "image_token_id": 94, "video_token_id": 93, "image_start_token_id": 92,
    "image_end_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 91,
}  # fmt: skip
MORE = {
    "Phi 3": (hf.Phi3ForCausalLM, hf.Phi3Config(**_SIZES)),
    "GLM": (hf.GlmForCausalLM, hf.GlmConfig(**_SIZES)),
    "GLM 4": (hf.Glm4ForCausalLM, hf.Glm4Config(**_SIZES)),
    "GLM 4V": (
        hf.Glm4vForConditionalGeneration,
        hf.Glm4vConfig(text_config=_TEXT, vision_config=_VISION, **_IMAGES),
    ),
    "Llama 4": (hf.Llama4ForCausalLM, hf.Llama4TextConfig(**_SIZES, **_EXPERTS, **_LLAMA4)),
    "Gemma 4": (hf.Gemma4ForCausalLM, hf.Gemma4TextConfig(**_SIZES, **_GEMMA4)),
    "GPT-OSS": (hf.GptOssForCausalLM, hf.GptOssConfig(**_WINDOW, **_EXPERTS)),
    "DeepSeek V4": (hf.DeepseekV4ForCausalLM, hf.DeepseekV4Config(**_SIZES)),
    "Nemotron": (hf.NemotronForCausalLM, hf.NemotronConfig(**_SIZES)),
    "OLMo": (hf.OlmoForCausalLM, hf.OlmoConfig(**_SIZES)),
    "OLMo 2": (hf.Olmo2ForCausalLM, hf.Olmo2Config(**_SIZES)),
    "OLMo 3": (hf.Olmo3ForCausalLM, hf.Olmo3Config(**_WINDOW)),
    "Granite": (hf.GraniteForCausalLM, hf.GraniteConfig(**_SIZES, **_GRANITE)),
    "Cohere": (hf.CohereForCausalLM, hf.CohereConfig(**_SIZES)),
    "Helium": (hf.HeliumForCausalLM, hf.HeliumConfig(**_SIZES)),
    "ERNIE 4.5": (hf.Ernie4_5ForCausalLM, hf.Ernie4_5Config(**_SIZES)),
    "GPT-NeoX": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**_SIZES)),
    "Mixtral": (hf.MixtralForCausalLM, hf.MixtralConfig(**_SIZES, **_EXPERTS)),
    "Qwen 3 MoE": (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(**_SIZES, **_EXPERTS)),
    "Qwen 2 MoE": (hf.Qwen2MoeForCausalLM, hf.Qwen2MoeConfig(**_SIZES, **_EXPERTS)),
    "OLMoE": (hf.OlmoeForCausalLM, hf.OlmoeConfig(**_SIZES, **_EXPERTS)),
    "DeepSeek V3": (
        hf.DeepseekV3ForCausalLM,
        hf.DeepseekV3Config(**{**_SIZES, **_LATENT, **_HEADS, **_EXPERTS, **_DEEPSEEK3}),
    ),
    "Qwen 2.5 VL": (
        hf.Qwen2_5_VLForConditionalGeneration,
        hf.Qwen2_5_VLConfig(text_config=_TEXT, vision_config=_VISION, **_IMAGES),
    ),
    "LLaVA": (
        hf.LlavaForConditionalGeneration,
        hf.LlavaConfig(
            text_config=hf.LlamaConfig(**_SIZES),
            vision_config=hf.CLIPVisionConfig(**_VISION),
            image_token_index=94,
        ),
    ),
}


def make(family="Llama", dtype=torch.float32, **changes):
    """A model in training mode, the same each time; `changes` are fields of its config."""
    cls, config = (FAMILIES | MORE)[family]
    config = type(config)(**{**config.to_dict(), **changes})
    torch.manual_seed(0)
    model = cls(config).train()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim < 2:
                p += 0.3 * torch.randn(p.shape)  # their initial values would hide wrong reads
            else:
                p *= 4.0  # so that logits differ
    return model.to(dtype)


def batch(tokens=17):
    """(token ids, labels): some labels are ignored."""
    ids = torch.randint(3, VOCABULARY, (2, tokens), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, :4] = -100
    return ids, labels


def step(model, **more):
    """{name: tensor}: the loss and every gradient of a training step, and logits."""
    ids, labels = batch()
    model.zero_grad()
    loss = model(input_ids=ids, labels=labels, **more).loss
    loss.backward()
    of = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    found = {f"gradient of {n}": gradient.clone() for n, gradient in of.items()}
    with torch.no_grad():
        logits = model.eval()(input_ids=ids).logits
    model.train()
    return {"loss": loss.detach(), "logits": logits, **found}


class InFloat64(TorchFunctionMode):
    """Computes everything in float64. Models use float32 in norms, softmax and loss whatever their
    dtype, which would leave float32's errors in a float64 reference."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wide = [torch.float64 if a is torch.float32 else a for a in args]
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*wide, **named)


def families_table():
    """docs/patch.md's table of the operators for each family, from `patch`'s reports."""
    parts = ("norm", "residual", "rope", "MLP", "experts", "loss")
    head = ("family", "norm", "sum and norm", "rope", "MLP", "experts", "loss", "left")
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for family in FAMILIES | MORE:
        report = kw.patch(make(family))
        by = {part: [x.by for x in report.replaced if x.what == part] for part in parts}
        cells = [", ".join(f"`{x}`" for x in dict.fromkeys(by[part])) for part in parts]
        left = ", ".join(f"`{x.module}`" for x in report.lines if not x.by)
        lines.append(f"| {' | '.join((family, *cells, left))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(families_table())


def patched(family="Llama", **changes):
    model = make(family, **changes)
    kw.patch(model)
    return model
