"""Generation compared with transformers, and the choice of tokens."""

import random

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.generation.logits_process import MinPLogitsWarper

from kernelwright import models
from kernelwright.infer import folder, generate
from kernelwright.infer.sampling import Sampling, choose
from kernelwright.models import tokenizer
from kernelwright.ops import introspect
from kernelwright.ops.random.sample.definition import filtered
from kernelwright.support.errors import UsageError
from support import transformers_models as theirs


@pytest.mark.parametrize("make", theirs.FAMILIES)
def test_greedy_tokens_are_those_of_transformers(make, tmp_path):
    seed = random.randrange(10**6)
    reference = theirs.saved(make, seed, tmp_path)
    ours = models.from_pretrained(tmp_path)
    draw = random.Random(seed)
    prompts = [draw.choices(range(theirs.VOCABULARY), k=draw.randint(1, 8)) for _ in range(3)]
    found = zip(*generate.tokens(ours, prompts, 20), strict=True)
    for prompt, row in zip(prompts, found, strict=True):
        tokens = torch.tensor([prompt])
        expected = reference.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=20,
            do_sample=False,
            pad_token_id=0,
            use_cache=False,  # its cache is wrong if a window is one token
        )
        assert list(row) == expected[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", ["gpt2-tiny", "llama-tiny"])
def test_the_cache_changes_nothing_and_a_full_context_slides(name):
    torch.manual_seed(random.randrange(10**6))
    model = models.build(name).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2)
    row, context = [3, 1, 4], model.config.context
    found = [t for (t,) in generate.tokens(model, [row], context + 40)]
    begin = 0
    for token in found:
        with torch.no_grad():
            assert model(torch.tensor([row[begin:]]))[0, -1].argmax() == token
        row.append(token)
        if len(row) - begin > context:
            begin = len(row) - context // 2


@pytest.mark.parametrize("rung", ["native", "cuda_block"])
def test_decoding_in_one_kernel_gives_the_same_tokens(rung):
    torch.manual_seed(3)
    model = models.build("llama-tiny").eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2)
    rows = [[3, 1, 4], [1, 5, 9, 2, 6]]
    plain = list(generate.tokens(model, rows, 6))
    with introspect.use(attention_with_kv_cache=rung):
        assert list(generate.tokens(model, rows, 6)) == plain


def test_filters_are_those_of_transformers():
    logits = torch.randn(5, 40) * 3
    k, p, least = random.randint(1, 40), random.uniform(0.05, 1.0), random.uniform(0.0, 0.5)
    for how, warp in (
        (Sampling(top_k=k), TopKLogitsWarper(k)),
        (Sampling(top_p=p), TopPLogitsWarper(p)),
        (Sampling(min_p=least), MinPLogitsWarper(least)),
    ):
        expected = warp(torch.zeros(5, 1, dtype=torch.long), logits.clone())
        found = filtered(logits, how.top_k, how.top_p, how.min_p)
        assert torch.equal(found.isinf(), expected.isinf()), how
    assert torch.equal(TemperatureLogitsWarper(0.5)(None, logits), logits / 0.5)


def test_draws_follow_the_probabilities_and_the_seed():
    p = torch.tensor([0.6, 0.3, 0.1])
    logits, draw = p.log().expand(20000, 3), torch.Generator()
    found = choose(logits, Sampling(), draw.manual_seed(1))
    shares = torch.bincount(found, minlength=3) / 20000
    assert torch.allclose(shares, p, atol=0.02)
    assert torch.equal(found, choose(logits, Sampling(), draw.manual_seed(1)))
    cold = torch.bincount(choose(logits, Sampling(0.5), draw), minlength=3) / 20000
    assert torch.allclose(cold, p**2 / (p**2).sum(), atol=0.02)


def test_a_row_stops_at_its_end_token_and_the_others_continue():
    model = models.build("gpt2-tiny")
    free = list(zip(*generate.tokens(model, [[1], [2]], 12), strict=True))
    end = free[0][3]
    rows = list(zip(*generate.tokens(model, [[1], [2]], 12, end=end), strict=True))
    for row, wanted in zip(rows, free, strict=True):
        stop = wanted.index(end) + 1 if end in wanted else 12
        assert row[:stop] == wanted[: len(row)][:stop]
        assert all(t is None for t in row[stop:])


def test_text_streams_by_whole_characters():
    text = "caffè ☕ 中"
    made = tokenizer.Bytes()
    stream = generate._Stream(made)
    parts = [stream.add(t) for t in made.encode(text).tolist()]
    assert "".join(parts) == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)
    assert generate._Stream(made).add(255) == ""


def test_a_folder_is_a_model_a_run_or_says_what_it_lacks(tmp_path):
    cpu = torch.device("cpu")
    with pytest.raises(UsageError, match="neither a model nor a checkpoint"):
        folder.load(tmp_path, cpu)
    models.save_pretrained(models.build("gpt2-tiny"), tmp_path / "run" / "model")
    with pytest.raises(UsageError, match="has no tokenizer"):
        folder.load(tmp_path / "run", cpu)
    tokenizer.save(tokenizer.Bytes(), tmp_path / "run" / "model")
    model, made = folder.load(tmp_path / "run", cpu)
    parts = list(generate.texts(model, made, ["a", "bc"], 5, Sampling(), 3))
    again = list(generate.texts(model, made, ["a", "bc"], 5, Sampling(), 3))
    assert parts == again
    with pytest.raises(UsageError, match="'fp8' is neither"):
        folder.load(tmp_path / "run", cpu, "fp8")


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"temperature": -1.0}, "temperature: must be finite"),
        ({"temperature": float("nan")}, "temperature: must be finite"),
        ({"top_k": -1}, "top_k: must not be negative"),
        ({"top_p": 0.0}, "top_p: must be above 0"),
        ({"min_p": 1.5}, "min_p: must be between"),
    ],
)
def test_sampling_is_checked(changes, says):
    with pytest.raises(UsageError, match=says):
        Sampling(**changes)


@pytest.mark.parametrize("prompt, says", [([], "number 1 is empty"), ([256], "outside the model")])
def test_prompts_are_checked(prompt, says):
    with pytest.raises(UsageError, match=says):
        next(generate.tokens(models.build("gpt2-tiny"), [prompt], 3))
