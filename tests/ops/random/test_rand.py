"""Tests of rand, randn and bernoulli: the numbers are those of PyTorch's CUDA generator."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import ladder
from kernelwright.ops.random._sequences import philox
from kernelwright.ops.random._state import draw_state
from kernelwright.ops.random.rand import definition
from kernelwright.ops.random.rand.grid import calls_of, threads_of
from ops.random.test_dropout import philox_of_words
from support.publics import DEVICE, fullgraph, gpu

SEED, OFFSET = -(2**62) + 12345, 2**34 - 4
STATE = torch.tensor([SEED, OFFSET])
KEY = [SEED % 2**32, SEED % 2**64 >> 32]


def word(i, threads):
    """The word of element i: the loop of PyTorch's kernel, followed by one of its threads."""
    thread, step, at = i % threads, 0, i % threads
    while at + 3 * threads < i:
        at, step = at + 4 * threads, step + 1
    counter = OFFSET // 4 + step
    words = philox_of_words([counter % 2**32, counter >> 32, thread, 0], KEY)
    return words[(i - at) // threads], words


def single(x):
    return torch.tensor(x, dtype=torch.float64).float().item()


def unit(word):
    return single(single(word) / 2**32 + 2**-33)


def test_philox_counts_sequences_above_positions():
    found = philox(torch.tensor([SEED]), torch.tensor([5, 2**33]), torch.tensor([2**40 + 3, 9]))
    assert found[0].tolist() == philox_of_words([5, 0, 3, 256], KEY)
    assert found[1].tolist() == philox_of_words([0, 2, 9, 0], KEY)


@pytest.mark.parametrize("threads", [256, 512])
def test_an_element_is_the_word_that_pytorchs_grid_gives_it(threads):
    n = 9 * threads + 77
    u = definition.uniform(STATE, (n,), threads, torch.float32)
    p = definition.bernoulli_p(STATE, (n,), threads, 0.25, torch.float32)
    z = definition.normal(STATE, (n,), threads, torch.float32)
    for i in (0, 1, threads - 1, threads, 4 * threads - 1, 4 * threads, 8 * threads + 5, n - 1):
        mine, words = word(i, threads)
        assert u[i] == unit(mine) and p[i] == (unit(mine) < 0.25)
        first = i // threads % 4 // 2 * 2
        radius = math.sqrt(-2 * math.log(unit(words[first])))
        angle = single(2 * math.pi * (words[first + 1] + 0.5) / 2**32)
        wave = math.cos if i // threads % 2 else math.sin
        assert math.isclose(z[i].item(), radius * wave(angle), abs_tol=2e-6 * radius)


def test_a_tensor_of_probabilities_takes_four_words_of_a_sequence():
    p = torch.linspace(0, 1, 77)
    found = definition.bernoulli(STATE, p)
    counter = [OFFSET // 4 % 2**32, OFFSET // 4 >> 32]
    for i in range(77):
        words = philox_of_words([*counter, i // 4, 0], KEY)
        assert found[i] == (unit(words[i % 4]) <= p[i].item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_what_rounds_to_one_is_zero(dtype, monkeypatch):
    eps = torch.finfo(dtype).eps
    last = round((1 - eps / 4) * 2**32)  # a half of the spacing below 1: a tie, which rounds up
    words = torch.tensor([last - 2**9, last, 2**32 - 1, 0])
    monkeypatch.setattr(definition, "philox", lambda *_: words.repeat(256, 1))
    found = definition.uniform(STATE, (1024,), 256, dtype)[::256]
    assert 1 - eps <= found[0] < 1 and found[1:3].tolist() == [0, 0] and found[3] <= 2**-32


def test_the_grid_fills_the_device_once(monkeypatch):
    made = SimpleNamespace(multi_processor_count=10, max_threads_per_multi_processor=1536)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: made)
    for n, threads, calls in (
        (1, 256, 1), (256, 256, 1), (257, 512, 1), (15360, 15360, 1), (10**5, 15360, 2),
    ):  # fmt: skip
        assert (threads_of(n, "cuda"), calls_of(n, threads)) == (threads, calls)


def test_on_a_cpu_pytorchs_own_generator_draws():
    for mine, theirs in ((kw.rand, torch.rand), (kw.randn, torch.randn)):
        g, h = (torch.Generator().manual_seed(3) for _ in range(2))
        out = torch.empty(2, 3)
        assert mine(2, 3, generator=g, out=out, device="cpu") is out
        assert torch.equal(out, theirs(2, 3, generator=h, device="cpu"))
        double = mine((4,), generator=g, dtype=torch.float64, device="cpu", requires_grad=True)
        assert double.requires_grad
        assert torch.equal(double, theirs((4,), generator=h, dtype=torch.float64, device="cpu"))
        p = torch.rand(5)
        assert torch.equal(kw.bernoulli(p, generator=g), torch.bernoulli(p, generator=h))
        assert torch.equal(kw.bernoulli(p, 0.3, generator=g), torch.bernoulli(p, 0.3, generator=h))


def test_sizes_and_generators_are_checked():
    with pytest.raises(ValueError, match="size: must not be negative, has -1"):
        kw.rand(2, -1)
    with pytest.raises(TypeError, match="size: must be integers, has a float"):
        kw.randn((2.0,))
    with pytest.raises(ValueError, match=r"p: .*1.5"):
        kw.bernoulli(torch.rand(2), 1.5)
    with pytest.raises(ValueError, match="generator: is of cpu, the result is on cuda"):
        draw_state(torch.device("cuda"), torch.Generator(), 1)


def test_the_gradient_of_probabilities_is_zero():
    from kernelwright.ops.random.rand import _bernoulli

    p = torch.rand(6, device=DEVICE, requires_grad=True)
    (grad,) = torch.autograd.grad(_bernoulli(STATE.to(DEVICE), p).sum(), p)
    assert torch.equal(grad, torch.zeros_like(p))


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 1000, 270_336, 4_000_003])
def test_a_gpus_numbers_are_pytorchs(dtype, n):
    g, h = (torch.Generator(DEVICE).manual_seed(2**63 + 5) for _ in range(2))
    mine, theirs = {"generator": g}, {"generator": h}
    like = {"dtype": dtype, "device": DEVICE}
    for _ in range(2):  # the second time continues where the first ended
        assert torch.equal(kw.rand(n, **mine, **like), torch.rand(n, **theirs, **like))
        assert torch.equal(kw.randn(n, **mine, **like), torch.randn(n, **theirs, **like))
        p = torch.rand(n, **like)
        assert torch.equal(kw.bernoulli(p, **mine), torch.bernoulli(p, **theirs))
        assert torch.equal(kw.bernoulli(p, 0.3, **mine), torch.bernoulli(p, 0.3, **theirs))
        assert g.get_offset() == h.get_offset()


@gpu
def test_each_replay_draws_others():
    g = torch.Generator(DEVICE).manual_seed(1)
    kw.rand(9, device=DEVICE, generator=g)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(g)
    with torch.cuda.graph(graph):
        y = kw.rand(9, device=DEVICE, generator=g)
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(y.clone())
    assert not torch.equal(*seen)


@gpu
def test_compiled_code_draws():
    y = fullgraph(lambda: kw.rand(64, device=DEVICE))()
    assert y.min() >= 0 and y.max() < 1


def test_what_is_timed_are_probabilities():
    """PyTorch's kernel, which is timed beside ours, asserts it on the device."""
    operator = ladder("bernoulli").operator
    timed = next(c for c in operator.cases if c.use == "bench")
    p = operator.inputs(replace(timed, shape=(8, 1000)), "cpu")["p"]
    assert p.min() >= 0 and p.max() <= 1 and p.unique().numel() > 100
