"""The engine: its answers, its pages, and the same answer whatever else runs."""

import random
from dataclasses import replace

import pytest
import torch

from kernelwright import models
from kernelwright.infer import generate
from kernelwright.infer.engine import Engine, Request, decode_steps, paged_cache
from kernelwright.infer.engine.decode_steps import DecodeSteps, can_be_captured
from kernelwright.infer.engine.draws import NO_TOKEN, draw
from kernelwright.infer.engine.pages import NO_PARENT, Content, Pages
from kernelwright.infer.engine.scheduler import Scheduler
from kernelwright.infer.engine.scores import most_likely, scores
from kernelwright.infer.engine.sequence import Sequence
from kernelwright.infer.sampling import Sampling
from kernelwright.models import quantized
from kernelwright.ops.matmul.quantized import quantize
from kernelwright.ops.random.sample.definition import filtered
from kernelwright.support.errors import UsageError
from support import interleavings
from support import transformers_models as theirs

NAMES = list(interleavings.MODELS)


def finished(engine):
    """The outputs of every continuation, by request and index."""
    outputs = {}
    while engine.busy:
        for output in engine.step():
            outputs.setdefault((output.id, output.index), []).append(output)
        interleavings.check(engine)
    return outputs


def tokens_of(engine, *requests):
    """The tokens of the first continuation of each request."""
    ids = [engine.add(request) for request in requests]
    outputs = finished(engine)
    return [[o.token for o in outputs[id, 0]] for id in ids]


# the same answers as without an engine


@pytest.mark.parametrize("make", theirs.FAMILIES)
def test_greedy_tokens_are_those_of_transformers(make, tmp_path):
    seed = random.randrange(10**6)
    reference = theirs.Exact(theirs.saved(make, seed, tmp_path))
    draws = random.Random(seed)
    prompts = [draws.choices(range(theirs.VOCABULARY), k=draws.randint(1, 20)) for _ in range(5)]
    ours = models.from_pretrained(tmp_path)
    engine = Engine(ours, pages=20, page_size=4, sequences=4, step_tokens=9)
    rows = tokens_of(engine, *(Request(p, 12) for p in prompts))
    for prompt, row in zip(prompts, rows, strict=True):
        assert len(row) == 12
        with torch.no_grad():
            logits = reference(torch.tensor([prompt + row])).logits[0, len(prompt) - 1 : -1]
        # the most likely token in float64, or one that rounding to float32 may prefer
        chosen = logits.gather(-1, torch.tensor(row)[:, None])[:, 0]
        assert ((logits.amax(-1) - chosen) <= 1e-4 * logits.abs().amax()).all(), seed


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_greedy_tokens_are_those_of_generate_up_to_the_end_of_the_context(name):
    model = interleavings.model(name)
    prompts = [[1, 2, 3], [4] * 40, [5, 6] * 19]
    engine = Engine(model, pages=12, page_size=16)
    ids = [engine.add(Request(p, 100)) for p in prompts]
    outputs = finished(engine)
    for id, prompt in zip(ids, prompts, strict=True):
        row = outputs[id, 0]
        assert len(row) == interleavings.CONTEXT + 1 - len(prompt)
        assert [o.finish for o in row] == [""] * (len(row) - 1) + ["length"]
        expected = generate.tokens(model, [prompt], len(row))
        assert [o.token for o in row] == [t for (t,) in expected]


def test_log_probabilities_are_those_of_the_model():
    model = interleavings.model("llama")
    prompt = [i % 23 for i in range(17)]
    for step_tokens in (1, 5, 100):
        engine = Engine(model, pages=4, sequences=1, step_tokens=step_tokens)
        engine.add(Request(prompt, 4, logprobs=3, prompt_logprobs=2))
        (row,) = finished(engine).values()
        every = [*prompt, *(o.token for o in row)]
        with torch.no_grad():
            expected = model(torch.tensor([every]))[0].log_softmax(-1)
        known = [*row[0].prompt_logprobs[1:], *((o.logprob, o.top) for o in row)]
        assert row[0].prompt_logprobs[0] is None
        assert all(o.prompt_logprobs is None for o in row[1:])
        for place, (logprob, top) in enumerate(known):
            assert logprob == pytest.approx(expected[place, every[place + 1]].item(), abs=1e-4)
            assert len(top) == (2 if place < len(prompt) - 1 else 3)
            best = expected[place].topk(len(top)).values.tolist()
            assert [p for _, p in top] == pytest.approx(best, abs=1e-4)
            assert [p for _, p in top] == pytest.approx(
                [expected[place, t].item() for t, _ in top], abs=1e-4
            )


def test_a_prompt_is_scored_without_new_tokens_and_from_a_cache_that_holds_it():
    engine = Engine(interleavings.model("gpt2"), pages=8, page_size=4, deterministic=True)
    asked = Request([3, 1, 4, 1, 5, 9, 2, 6, 5], 0, prompt_logprobs=1)
    for _ in range(2):
        engine.add(asked)
    first, second = finished(engine).values()
    assert [(o.token, o.finish) for o in first] == [(None, "length")]
    assert len(first[0].prompt_logprobs) == 9
    assert first[0].prompt_logprobs == second[0].prompt_logprobs


# the same answers whatever else runs


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("name", NAMES)
def test_a_request_has_the_same_bits_alone_and_among_others(name, seed):
    interleavings.interleave(name, 0, seed)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(10))
@pytest.mark.parametrize("name", NAMES)
def test_a_request_has_the_same_bits_in_many_schedules(name, hundred):
    counts = sum(
        (interleavings.interleave(name, 1 + hundred, 1000 * hundred + i) for i in range(34)),
        start=interleavings.Counter(),
    )
    # the schedules are as difficult as they are meant to be
    assert counts["preemptions"] > 9 and counts["reused"] > 300 and counts["forks"] > 30


@pytest.mark.skipif(
    not torch.cuda.is_available() or not can_be_captured(),
    reason="needs a GPU",  # for which a kernel of attention over pages is proven
)
@pytest.mark.parametrize("name", NAMES)
def test_a_request_has_the_same_bits_on_a_gpu(name):
    """There, steps of generation are CUDA graphs."""
    for seed in range(34):
        interleavings.interleave(name, seed % 4, 1000 + seed, "cuda")


def _freed_early(monkeypatch):
    release = Pages.release

    def faulty(self, pages):
        release(self, pages)
        for page in pages[-1:]:
            if self.users[page] and page not in self._unused:
                self._unused[page] = None

    monkeypatch.setattr(Pages, "release", faulty)


def _without_parent(monkeypatch):
    monkeypatch.setattr(
        "kernelwright.infer.engine.scheduler.Content", lambda parent, tokens: Content(0, tokens)
    )
    monkeypatch.setattr(
        "kernelwright.infer.engine.pages.Content", lambda parent, tokens: Content(0, tokens)
    )


def _off_by_one_after_preemption(monkeypatch):
    begin = Scheduler._begin

    def faulty(self, sequence):
        began = begin(self, sequence)
        if began and len(sequence.tokens) > len(sequence.request.prompt):
            sequence.computed = min(sequence.computed + 1, len(sequence.tokens) - 1)
        return began

    monkeypatch.setattr(Scheduler, "_begin", faulty)


def _missing_copy_at_fork(monkeypatch):
    monkeypatch.setattr(paged_cache.PagedCache, "copy", lambda self, source, target: None)


def _page_shared_at_fork(monkeypatch):
    fork = Scheduler.fork

    def faulty(self, parent, child):
        copied = fork(self, parent, child)
        if copied:
            child.pages[-1] = self.table[child.row, len(child.pages) - 1] = copied[0]

    monkeypatch.setattr(Scheduler, "fork", faulty)


def _reads_one_token_too_few(monkeypatch):
    place = paged_cache.PagedCache.place

    def faulty(self, table, first, counts):
        place(self, table, first, counts)
        lengths = self.tokens.lengths_S
        self.tokens = replace(self.tokens, lengths_S=lengths - (lengths > 20).int())

    monkeypatch.setattr(paged_cache.PagedCache, "place", faulty)


def _scores_skipped_after_a_hit(monkeypatch):
    monkeypatch.setattr(Sequence, "reusable", property(lambda self: len(self.tokens)))


def _random_numbers_of_the_schedule(monkeypatch):
    numbers = random.Random(1)
    monkeypatch.setattr(Sequence, "uniform", lambda self: numbers.random())


def _products_of_the_batch(monkeypatch):
    monkeypatch.setattr("kernelwright.infer.engine.engine.INVARIANT", {"cpu": {}})


@pytest.mark.parametrize(
    "plant",
    [
        _freed_early, _without_parent, _off_by_one_after_preemption, _missing_copy_at_fork,
        _page_shared_at_fork, _reads_one_token_too_few, _scores_skipped_after_a_hit,
        _random_numbers_of_the_schedule, _products_of_the_batch,
    ],
)  # fmt: skip
def test_schedules_find_planted_faults(plant, monkeypatch):
    for i in range(12):
        interleavings.alone("llama", 0, i)  # without the fault
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(40):
            interleavings.interleave("llama", 0, seed)


def test_a_continued_text_continues_as_before():
    engine = Engine(interleavings.model("gpt2"), pages=40, deterministic=True)
    asked = Request([1, 2, 3], 12, Sampling(), seed=2**64 - 1)
    (row,) = tokens_of(engine, asked)
    (rest,) = tokens_of(engine, replace(asked, prompt=[*asked.prompt, *row[:5]], max_tokens=7))
    assert row[5:] == rest


def test_continuations_share_the_prompt_and_differ():
    model, prompt = interleavings.model("llama"), [2] * 30
    asked = Request(prompt, 4, Sampling(temperature=2.0), seed=3, n=4, logprobs=0)
    engine = Engine(model, pages=20, page_size=4, deterministic=True)
    engine.add(asked)
    engine.step()
    assert engine.statistics().pages_used == 8 + 3  # 7 are shared, the incomplete one is not
    rows = list(finished(engine).values())
    assert len({tuple(o.token for o in row) for row in rows}) > 1
    other = Engine(model, pages=20, deterministic=True)
    other.add(replace(asked, n=1))
    (alone,) = finished(other).values()
    assert [o.token for o in alone][1:] == [o.token for o in rows[0]]


# drawing


def test_draws_follow_the_filters_and_the_probabilities():
    seed = random.randrange(10**6)
    torch.manual_seed(seed)
    count, draws = 30, random.Random(seed)
    hows = [
        Sampling(draws.uniform(0.3, 3), draws.randint(0, 35), draws.uniform(0.05, 1),
                 draws.choice((0.0, draws.uniform(0, 0.5))))
        for _ in range(12)
    ]  # fmt: skip
    hows += [Sampling(), Sampling(top_k=1), Sampling(top_p=1e-9)]
    logits = torch.randn(len(hows), count) * 3
    logits[:, 3] = logits[:, 7]
    numbers = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    for row, how in zip(logits, hows, strict=True):
        rest = row.double()[None] / how.temperature
        left = filtered(rest - rest.max(), how.top_k, how.top_p, how.min_p)
        tokens = draw(row.expand(4000, -1), [how] * 4000, numbers.tolist())
        shares = torch.bincount(tokens, minlength=count) / 4000
        assert torch.allclose(shares.double(), left.softmax(-1)[0], atol=2 / 4000), (seed, how)
        assert not shares[left[0].isinf()].any(), (seed, how)


def test_a_draw_does_not_depend_on_other_rows():
    seed = random.randrange(10**6)
    torch.manual_seed(seed)
    draws = random.Random(seed)
    logits = torch.randn(40, 1003) * 4
    hows = [Sampling(draws.choice((0.0, 0.5, 1.0)), draws.choice((0, 5)), draws.choice((1.0, 0.9)))
            for _ in range(40)]  # fmt: skip
    numbers = [draws.random() for _ in range(40)]
    together = draw(logits, hows, numbers).tolist()
    one_by_one = [draw(logits[i : i + 1], [hows[i]], [numbers[i]]).item() for i in range(40)]
    assert together == one_by_one, seed


@pytest.mark.parametrize("how", [Sampling(0.0), Sampling(), Sampling(top_p=0.9)])
def test_a_row_without_a_largest_logit_has_no_token(how):
    logits = torch.zeros(4, 5)
    logits[0, 2], logits[1], logits[2, 1] = torch.nan, -torch.inf, torch.inf
    logits[3, :4] = -torch.inf
    assert draw(logits, [how] * 4, [0.999] * 4).tolist() == [NO_TOKEN] * 3 + [4]


def test_logits_that_are_not_numbers_end_a_request_and_no_other():
    model = models.build(interleavings.GPT2)
    with torch.no_grad():
        model.positions[5] = torch.nan
    engine = Engine(model, pages=8)
    ids = [engine.add(Request([1] * length, 3, n=n)) for length, n in ((2, 1), (6, 2))]
    outputs = finished(engine)
    assert [o.finish for o in outputs[ids[0], 0]] == ["", "", "length"]
    for i in range(2):
        assert [(o.token, o.finish) for o in outputs[ids[1], i]] == [(None, "error")]


def test_equal_log_probabilities_are_in_the_order_of_the_tokens():
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0, 1.0, -torch.inf]])
    assert most_likely(logits, 9).tolist() == [[1, 3, 2, 4, 0, 5]]
    ((logprob, top),) = scores(logits, [3], [2])
    assert [t for t, _ in top] == [1, 3] and top[1][1] == logprob


def test_numbers_of_a_seed_are_uniform_and_independent():
    engine = Engine(interleavings.model("gpt2"), pages=4)
    numbers = []
    for seed in range(40):
        engine.add(Request([1], 1, seed=seed, n=2))
        ((sequence,),) = engine._sequences.values()
        numbers += [sequence.uniform() for _ in range(50)]
        engine.cancel(sequence.id)
    assert len(set(numbers)) == 2000
    counts = torch.histc(torch.tensor(numbers), 10, 0, 1)
    assert 0.02 < counts.std() / 200 < 0.2


# pages


def test_the_least_recently_used_page_is_taken_first_and_children_before_parents():
    pages = Pages(5, 2)
    first = pages.take(3)
    parent = NO_PARENT
    for page, tokens in zip(first, ((1, 2), (3, 4), (5, 6)), strict=True):
        parent = pages.publish(page, Content(parent, tokens))
    pages.release(first)
    assert (pages.available, pages.cached) == (5, 3)
    assert pages.take(6) is None
    taken = pages.take(3)
    assert taken[2] == first[2]  # two were blank, then the last page of the sequence
    assert pages.prefix([1, 2, 3, 4, 5, 6], 6) == first[:2]
    assert pages.prefix([1, 2, 3, 4], 3) == first[:1]
    assert pages.prefix([0, 2, 3, 4], 4) == []
    assert pages.users[first[0]] == 2


def test_a_content_that_another_sequence_has_computed_is_kept_once():
    pages = Pages(4, 1)
    one, two = pages.take(1), pages.take(1)
    assert pages.publish(one[0], Content(NO_PARENT, (7,))) == one[0]
    assert pages.publish(two[0], Content(NO_PARENT, (7,))) == one[0]
    assert (pages.users[one[0]], pages.available) == (2, 3)


def test_equal_hashes_do_no_harm(monkeypatch):
    monkeypatch.setattr(Content, "__hash__", lambda self: 1)
    interleavings.interleave("gpt2", 0, 3)


def test_a_step_computes_drawn_tokens_then_pieces_of_prompts_up_to_its_budget():
    engine = Engine(interleavings.model("gpt2"), pages=60, sequences=3, step_tokens=5)
    for length in (2, 3, 20, 4):
        engine.add(Request([length] * length, 4))
    steps = []
    while engine.busy:
        drawn = [output.id for output in engine.step()]
        steps.append((engine._cache.tokens.slots_T.numel(), drawn))
    # two prompts; then their drawn tokens, and three tokens of the third prompt, until they end
    expected = [(5, [0, 1])] * 4 + [(5, []), (5, []), (5, [2, 3])] + [(2, [2, 3])] * 3
    assert steps == expected


# requests


def test_statistics():
    engine = Engine(interleavings.model("gpt2"), pages=30, page_size=4)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    tokens_of(engine, Request(prompt, 3))
    engine.add(Request([*prompt, 9], 2))
    engine.step()
    counted = engine.statistics()
    assert (counted.running, counted.waiting, counted.steps) == (1, 0, 4)
    assert (counted.prefix_hit_tokens, counted.prompt_tokens) == (8, 17)
    assert (counted.generated_tokens, counted.pages, counted.preemptions) == (4, 30, 0)
    assert (counted.pages_used, counted.pages_cached) == (3, 0)


def test_a_cancelled_request_ends_and_the_others_continue():
    engine = Engine(interleavings.model("gpt2"), pages=30, sequences=2)
    ids = [engine.add(Request([i], 8, n=n)) for i, n in ((1, 1), (2, 2), (3, 3))]
    engine.step()
    for id in (ids[1], ids[2], 99):
        engine.cancel(id)
        engine.cancel(id)
    outputs = finished(engine)
    assert len(outputs[ids[0], 0]) == 7
    ends = {key: [(o.token, o.finish) for o in row] for key, row in outputs.items() if key[0]}
    expected = [(ids[1], 0), (ids[1], 1), (ids[2], 0), (ids[2], 1), (ids[2], 2)]
    assert ends == {key: [(None, "cancelled")] for key in expected}


def test_an_end_token_ends_a_continuation():
    engine = Engine(interleavings.model("gpt2"), pages=30)
    (row,) = tokens_of(engine, Request([1, 2], 12))
    end = row[4]
    engine.add(Request([1, 2], 12, end_tokens=frozenset((end,))))
    (outputs,) = finished(engine).values()
    assert [o.token for o in outputs] == row[: row.index(end) + 1]
    assert outputs[-1].finish == "stop"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": []}, "prompt: is empty"),
        ({"prompt": [1, 2.5]}, "prompt: must be a sequence of integers: 'float'"),
        ({"prompt": 3}, "prompt: must be a sequence of integers"),
        ({"prompt": [23]}, "prompt: has tokens outside the vocabulary of 23"),
        ({"prompt": [-1]}, "prompt: has tokens outside"),
        ({"prompt": [1] * 41}, "prompt: 41 tokens, the model's context is 40"),
        ({"prompt": [1] * 30, "max_tokens": 12}, "max_tokens: .* 40 tokens, there are 9 pages"),
        ({"max_tokens": 0}, "max_tokens: must be at least 1"),
        ({"max_tokens": -1, "prompt_logprobs": 1}, "max_tokens: must be at least 0"),
        ({"seed": 2**64}, "seed: must be at least 0 and less than 2"),
        ({"seed": -1}, "seed: must be at least 0"),
        ({"n": 0}, "n: must be at least 1"),
        ({"logprobs": -1}, "logprobs: must not be negative"),
        ({"prompt_logprobs": -2}, "prompt_logprobs: must not be negative"),
    ],
)
def test_a_request_that_can_never_be_answered_is_refused(changes, message):
    engine = Engine(interleavings.model("gpt2"), pages=9, page_size=4)
    with pytest.raises(UsageError, match=message):
        engine.add(Request(**{"prompt": [1], "max_tokens": 1, **changes}))
    assert not engine.busy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pages": 0}, "pages: must be at least 1"),
        ({"page_size": 0}, "page_size: must be at least 1"),
        ({"sequences": 0}, "sequences: must be at least 1"),
        ({"sequences": 9, "step_tokens": 8}, "step_tokens: must be at least .* 9"),
        ({"vocabulary": 24}, "vocabulary: must be from 1 to the model's 23"),
        ({"cache_dtype": torch.float16}, "cache_dtype: must be the model's torch.float32, float8"),
    ],
)
def test_an_engine_of_wrong_sizes_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        Engine(interleavings.model("gpt2"), **{"pages": 4, **changes})


def test_a_deterministic_engine_of_a_quantized_model_is_refused():
    model = models.build(interleavings.GPT2)
    model.blocks[0].qkv = quantized.layer([quantize(torch.randn(8, 128))], None)
    Engine(model, pages=4)
    with pytest.raises(UsageError, match="deterministic: products with quantized weights"):
        Engine(model, pages=4, deterministic=True)


def test_the_longest_request_that_fits_is_answered():
    engine = Engine(interleavings.model("gpt2"), pages=5, page_size=4)
    (row,) = tokens_of(engine, Request([1] * 9, 12))  # the last token is not stored
    assert len(row) == 12


def test_padding_of_the_vocabulary_is_never_drawn():
    model = interleavings.model("llama")
    engine = Engine(model, pages=9, vocabulary=7)
    rows = tokens_of(engine, Request([1], 30, Sampling(5.0)), Request([2], 30))
    assert max(map(max, rows)) < 7


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.int8, 0.05), (torch.float8_e4m3fn, 0.15), (torch.float8_e5m2, 0.3)],
)
def test_a_cache_of_8_bits_is_near_the_model(dtype, error):
    torch.manual_seed(0)
    model = models.build(interleavings.LLAMA)
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2)
    prompt = [i % 23 for i in range(30)]
    scored = []
    for cache_dtype in (None, dtype):
        engine = Engine(model, pages=4, cache_dtype=cache_dtype)
        engine.add(Request(prompt, 0, prompt_logprobs=0))
        ((output,),) = finished(engine).values()
        scored.append([s.logprob for s in output.prompt_logprobs[1:]])
    plain, stored = torch.tensor(scored)
    assert 0 < (plain - stored).square().mean().sqrt() < error


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_a_fixed_number_of_rows_have_the_same_bits(name):
    """As on a GPU, where they are CUDA graphs; rows and columns of the table are added."""
    model, (_, _, cache_dtype) = interleavings.model(name), interleavings.MODELS[name]
    settings = {"pages": 64, "page_size": 4, "deterministic": True, "cache_dtype": cache_dtype}
    plain, fixed = (Engine(model, **settings) for _ in range(2))
    fixed._decode_steps = DecodeSteps(model, fixed._cache)
    rng = random.Random(name)
    asked = [
        Request(
            [rng.randrange(model.config.vocabulary) for _ in range(rng.randint(1, 20))],
            rng.randint(2, 12), Sampling(), seed=i, logprobs=2,
        )
        for i in range(5)
    ]  # fmt: skip
    for engine in (plain, fixed):
        for request in asked:
            engine.add(request)
    assert finished(fixed) == finished(plain)
    assert len(fixed._decode_steps._steps) > 2


def test_steps_are_captured_only_if_a_kernel_of_attention_over_pages_is_proven(monkeypatch):
    for machines, expected in (((), False), (("nvidia-h200",), True)):
        monkeypatch.setattr(decode_steps, "proven_on", lambda lad, rung, m=machines: m)
        assert can_be_captured() is expected
