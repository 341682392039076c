"""attn_implementation="kernelwright" in transformers' continuous batching."""

import random

import pytest
import torch

import kernelwright as kw
from kernelwright.integrations.transformers import paged

transformers = pytest.importorskip("transformers")

FAMILIES = {
    "llama": (transformers.LlamaConfig, {}, "sdpa"),
    "mistral": (transformers.MistralConfig, {"sliding_window": 16}, "sdpa"),
    "gemma2": (
        transformers.Gemma2Config,
        {"head_dim": 16, "sliding_window": 16, "attn_logit_softcapping": 3.0},
        "paged|eager",
    ),
}


def model(family):
    config, more, theirs = FAMILIES[family]
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    }  # fmt: skip
    made = transformers.AutoModelForCausalLM.from_config(config(**sizes, **more))
    return made.eval(), theirs


def generated(of, implementation, prompts):
    of.set_attn_implementation(implementation)
    how = transformers.GenerationConfig(
        max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    # prompts are computed in pieces of at most 64 tokens, beside others that are continued
    batching = transformers.ContinuousBatchingConfig(max_batch_tokens=64, num_blocks=16)
    results = of.generate_batch(
        prompts, generation_config=how, continuous_batching_config=batching, progress_bar=False
    )
    return [(r.prompt_ids, r.generated_tokens) for r in results.values()]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_generates_the_tokens_of_transformers_attention(family, monkeypatch):
    name = kw.register_attention()
    of, theirs = model(family)
    rng = random.Random(family)
    prompts = [[rng.randrange(3, 97) for _ in range(n)] for n in (1, 5, 40, 150)]
    expected = generated(of, theirs, prompts)
    in_blocks, attend = [], kw.attention_varlen

    def counted(*args, **options):
        in_blocks.append("block_table" in options)
        return attend(*args, **options)

    monkeypatch.setattr(kw, "attention_varlen", counted)
    assert generated(of, name, prompts) == expected
    later = set(in_blocks[-3:])  # the last step's layers: all sequences have earlier tokens
    assert later == {"llama": {True}, "mistral": {False}, "gemma2": {True, False}}[family]


def test_a_call_without_a_cache_is_an_error():
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="attn_implementation='kernelwright'"):
        paged.paged_attention(torch.nn.Module(), q, q, q, None)


@pytest.mark.parametrize(
    "given", [{"dropout": 0.1}, {"attention_mask": 0}, {"block_table": torch.zeros(1)}]
)
def test_what_it_does_not_read_is_refused(given):
    q, ends = torch.zeros(1, 2, 3, 4), torch.tensor([0, 3], dtype=torch.int32)
    options = {"attention_mask": None, "cache": object(), "cu_seq_lens_q": ends} | given
    with pytest.raises(NotImplementedError, match="not supported"):
        paged.paged_attention(torch.nn.Module(), q, q, q, **options)


def test_the_table_has_the_block_of_every_key():
    rng, size = random.Random(7), 16
    lengths = [1, 15, 16, 17, 70]
    blocks = rng.sample(range(40), sum(-(-n // size) for n in lengths))
    kept, slots, ends = iter(blocks), [], [0]
    expected = []
    for n in lengths:
        own = [next(kept) for _ in range(-(-n // size))]
        expected.append(own)
        slots += [own[i // size] * size + i % size for i in range(n)]
        ends.append(ends[-1] + n)
    table = paged._table(torch.tensor(slots), torch.tensor(ends, dtype=torch.int32), 70, size)
    assert table.dtype == torch.int32
    assert [row[: len(own)].tolist() for row, own in zip(table, expected, strict=True)] == expected
