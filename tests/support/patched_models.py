"""Small random transformers models of each family that `kw.patch` knows, and a step of training."""

import torch
from torch.overrides import TorchFunctionMode
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
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
    "Llama": (LlamaForCausalLM, LlamaConfig(**_SIZES)),
    "Qwen 2": (Qwen2ForCausalLM, Qwen2Config(**_WINDOW, use_sliding_window=True)),
    "Qwen 3": (Qwen3ForCausalLM, Qwen3Config(**_WINDOW)),
    "Mistral": (MistralForCausalLM, MistralConfig(**_WINDOW)),
    "Gemma": (GemmaForCausalLM, GemmaConfig(**_SIZES)),
    "Gemma 2": (Gemma2ForCausalLM, Gemma2Config(**_WINDOW)),
    "Gemma 3": (Gemma3ForCausalLM, Gemma3TextConfig(**_WINDOW)),
    "GPT-2": (GPT2LMHeadModel, GPT2Config(**_GPT2, **_NO_DROPOUT)),
}


def make(family="Llama", dtype=torch.float32, **changes):
    """A model in training, the same each time; `changes` are of its config."""
    cls, config = FAMILIES[family]
    config = type(config)(**{**config.to_dict(), **changes})
    torch.manual_seed(0)
    model = cls(config).train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or "ln_" in name or name.endswith("bias"):
                p += 0.3 * torch.randn(p.shape)  # as initialised, they hide what reads them wrongly
            else:
                p *= 4.0  # logits that differ
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
    found = {f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters()}
    with torch.no_grad():
        logits = model.eval()(input_ids=ids).logits
    model.train()
    return {"loss": loss.detach(), "logits": logits, **found}


class InFloat64(TorchFunctionMode):
    """Nothing is computed in float32: models do so in norms, softmax and loss whatever their
    dtype, which would leave float32's errors in a float64 reference."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wide = [torch.float64 if a is torch.float32 else a for a in args]
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*wide, **named)


def families_table():
    """docs/patch.md's table of what serves each family, from what `patch` reports."""
    parts = ("norm", "residual", "rope", "MLP", "loss")
    lines = ["| family | norm | sum and norm | rope | MLP | loss |", "| --- " * 6 + "|"]
    for family in FAMILIES:
        by = {line.what: f"`{line.by}`" for line in kw.patch(make(family)).replaced}
        lines.append(f"| {' | '.join((family, *(by.get(part, '') for part in parts)))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(families_table())


def patched(family="Llama", **changes):
    model = make(family, **changes)
    kw.patch(model)
    return model
