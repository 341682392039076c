"""Random schedules of an engine, and what must hold whatever the schedule is."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import torch

from kernelwright import models
from kernelwright.infer.engine import Engine, Output, Request
from kernelwright.infer.engine.pages import NO_PARENT
from kernelwright.infer.sampling import Sampling
from kernelwright.models import gpt2, llama

VOCABULARY, CONTEXT = 23, 40
GPT2 = gpt2.Config(layers=2, heads=2, width=12, context=CONTEXT, vocabulary=VOCABULARY)
LLAMA = llama.Config(
    layers=2, heads=4, kv_heads=2, width=20, head_size=6, mlp_width=28, context=CONTEXT,
    vocabulary=VOCABULARY,
)  # fmt: skip
GEMMA = replace(
    LLAMA, windows=(5, 0), softcap=20.0, logit_softcap=30.0, activation="gelu_tanh", qk_norm=True,
    norm_offset=1.0, post_norms=True, scaled_embedding=True,
)  # fmt: skip
#: Configuration, dtype of the model, dtype of the cache.
MODELS = {
    "gpt2": (GPT2, torch.float32, None),
    "llama": (LLAMA, torch.float32, None),
    "gemma, 8 bits": (GEMMA, torch.bfloat16, torch.int8),
}
Results = dict[int, list[Output]]  # the outputs of each continuation


@cache
def model(name: str, device: str = "cpu"):
    """A random model whose weights are so large that each token affects the next ones."""
    torch.manual_seed(5)
    config, dtype, _ = MODELS[name]
    built = models.build(config).eval()
    for p in built.parameters():
        torch.nn.init.normal_(p, 0.0, 0.4)
    return built.to(device, dtype)


def request(draw: random.Random) -> Request:
    """A request that is likely to begin as another one does."""
    power = draw.choice((2, 3))
    base = [i**power % VOCABULARY for i in range(14)][: draw.randrange(15)]
    prompt = base + draw.choices(range(VOCABULARY), k=draw.choice((0, 1, 2, 7)))
    how = Sampling(
        temperature=draw.choice((0.0, 0.7, 2.0)), top_k=draw.choice((0, 3, 12)),
        top_p=draw.choice((1.0, 0.8)), min_p=draw.choice((0.0, 0.05)),
    )  # fmt: skip
    return Request(
        prompt or [draw.randrange(VOCABULARY)], draw.randint(1, 10), how,
        seed=draw.randrange(2**64), n=draw.choice((1, 1, 2, 3)),
        end_tokens=frozenset(draw.choices(range(VOCABULARY), k=draw.choice((0, 2)))),
        logprobs=draw.choice((None, 0, 3)), prompt_logprobs=draw.choice((None, None, None, 0, 2)),
    )  # fmt: skip


@cache
def requests(pool: int) -> tuple[Request, ...]:
    draw = random.Random(pool)
    return tuple(request(draw) for _ in range(12))


@cache
def alone(name: str, pool: int, i: int, device: str = "cpu") -> Results:
    """The outputs of a request of a pool in an engine of its own."""
    engine = Engine(model(name, device), pages=24, deterministic=True, cache_dtype=MODELS[name][2])
    engine.add(requests(pool)[i])
    results: Results = {}
    while engine.busy:
        for output in engine.step():
            results.setdefault(output.index, []).append(output)
    return results


def interleave(name: str, pool: int, seed: int, device: str = "cpu") -> Counter[str]:
    """Run random requests of a pool in one engine with hardly more pages than one of them needs,
    and compare each with its outputs alone.

    Returns:
        How often what makes a schedule difficult has happened.
    """
    draw = random.Random(seed)
    size, sequences = draw.choice((1, 2, 3, 4, 7)), draw.randint(1, 6)
    chosen = [draw.randrange(len(requests(pool))) for _ in range(draw.randint(3, 7))]
    tokens = (len(r.prompt) + r.max_tokens for r in (requests(pool)[i] for i in chosen))
    pages = -(-min(max(tokens), CONTEXT) // size) + draw.choice((0, 0, 1, 3))
    engine = Engine(
        model(name, device), pages=pages,
        page_size=size, sequences=sequences, step_tokens=sequences + draw.choice((0, 1, 5, 30)),
        deterministic=True, cache_dtype=MODELS[name][2],
    )  # fmt: skip
    of_id: dict[int, int] = {}
    results: dict[int, Results] = {}
    pending = chosen.copy()
    while pending or engine.busy:
        while pending and (not engine.busy or draw.random() < 0.3):
            id = engine.add(requests(pool)[pending[0]])
            of_id[id], results[id] = pending.pop(0), {}
        if draw.random() < 0.02:
            engine.cancel(draw.choice(list(of_id)))
        for output in engine.step():
            results[output.id].setdefault(output.index, []).append(output)
        check(engine)
    counted = engine.statistics()
    assert counted.pages_used == 0
    for id, i in of_id.items():
        compare(results[id], alone(name, pool, i, device), id)
    return Counter(
        preemptions=counted.preemptions, reused=counted.prefix_hit_tokens,
        forks=sum(requests(pool)[i].n > 1 for i in chosen),
    )  # fmt: skip


def compare(results: Results, expected: Results, id: int) -> None:
    """Assert that a request's outputs are equal, as far as it was not cancelled."""
    assert results.keys() == expected.keys()
    for index, outputs in results.items():
        wanted = expected[index]
        if outputs[-1].finish == "cancelled":
            outputs = outputs[:-1]
            wanted = wanted[: len(outputs)]
        assert [values(o) for o in outputs] == [values(o) for o in wanted]
        assert all(o.id == id for o in outputs)


def values(output: Output) -> tuple:
    return (output.index, output.token, output.logprob, output.top, output.finish,
            output.prompt_logprobs)  # fmt: skip


def check(engine: Engine) -> None:
    """Assert what holds between steps."""
    pages, scheduler = engine._pages, engine._scheduler
    users = Counter(page for s in scheduler.running for page in s.pages)
    assert [users[page] for page in range(pages.count)] == pages.users
    free = [*pages._blank, *pages._unused]
    assert sorted([*free, *users]) == list(range(pages.count))
    assert {c: p for p, c in enumerate(pages._contents) if c is not None} == pages._pages
    for content in pages._pages:
        assert content.parent == NO_PARENT or pages._contents[content.parent] is not None
        assert len(content.tokens) == pages.size
    assert all(pages._contents[page] is None for page in pages._blank)
    assert all(pages._contents[page] is not None for page in pages._unused)
    for s in scheduler.running:
        assert 0 <= s.computed < len(s.tokens) <= engine.context + 1
        full = s.computed // pages.size
        assert len(s.pages) >= -(-s.computed // pages.size)
        assert scheduler.table[s.row, : len(s.pages)].tolist() == s.pages
        assert all(users[page] == 1 for page in s.pages[full:])
        for i, page in enumerate(s.pages[:full]):
            content = pages._contents[page]
            assert content.parent == (s.pages[i - 1] if i else NO_PARENT)
            assert list(content.tokens) == s.tokens[i * pages.size : (i + 1) * pages.size]
    rows = [s.row for s in scheduler.running] + scheduler._rows
    assert sorted(rows) == list(range(len(scheduler.table)))
    assert all(s.row == -1 and not s.pages and not s.computed for s in scheduler.waiting)
    for queue in (scheduler.running, scheduler.waiting):
        assert queue == sorted(queue, key=lambda s: s.order)
    known = [s for of_request in engine._sequences.values() for s in of_request]
    assert sorted(map(id, known)) == sorted(map(id, scheduler.running + scheduler.waiting))
