"""Tests of sample: distributions, filters, ties, rows without tokens."""

import math

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.random.sample import LADDER, definition
from support.publics import DEVICE, gpu, randn

RUNGS = (
    "native",
    "cuda_gumbel",
    "cuda_block",
    "cuda_cluster",
    "cuda_shared_best",
    "cuda_histogram",
)
PLAIN = {"temperature": 1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0}


def drawn(rung, logits, seed=1, offset=0, **how):
    how = {**PLAIN, **how}
    filtered = any(how[n] != PLAIN[n] for n in ("top_k", "top_p", "min_p"))
    state = torch.tensor([seed, offset], device=logits.device)
    args = {"logits": logits, "state": state, "each": None, **how, "filtered": filtered}
    return launcher(LADDER, args, rung)(*args.values())


def chi_squared(found, p):
    """The statistic of counts of tokens; tokens of probability 0 must have a count of 0."""
    counts = torch.bincount(found.cpu(), minlength=len(p)).double()
    assert counts[p == 0].sum() == 0
    expected = p[p > 0] * found.numel()
    return ((counts[p > 0] - expected).square() / expected).sum().item(), int((p > 0).sum()) - 1


@pytest.mark.cover
@pytest.mark.parametrize("how", [
    {}, {"temperature": 0.5}, {"top_k": 4.0}, {"top_p": 0.6}, {"min_p": 0.2},
    {"top_k": 6.0, "top_p": 0.8, "min_p": 0.1, "temperature": 1.5},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("rung", ["native", "cuda_block", "cuda_histogram"])
def test_draws_have_the_distribution(rung, how):
    """Many draws from a row; a right rung fails for one of a million seeds; the seed is fixed."""
    few = 300 if rung == "cuda_histogram" else 600  # in the emulator
    rows, columns = (8000, 11) if rung == "native" or DEVICE == "cuda" else (few, 11)
    row = randn(columns, seed=4)
    x = {**PLAIN, **how}
    left = definition.filtered(
        row.double()[None] / x["temperature"], x["top_k"], x["top_p"], x["min_p"]
    )
    found = drawn(rung, row.expand(rows, columns).contiguous(), seed=7, **how)
    statistic, freedom = chi_squared(found, left.softmax(-1)[0].cpu())
    assert statistic < freedom + 6 * math.sqrt(2 * freedom) + 9


@pytest.mark.cover
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rungs_draw_what_the_definition_says(rung, dtype):
    logits = randn(6, 3001, dtype=dtype, seed=3)
    ways = ({}, {"temperature": 0.3}) if rung == "cuda_gumbel" else (
        {"top_k": 1.0}, {"top_k": 40.0, "top_p": 0.5}, {"top_p": 0.05}, {"min_p": 1.0},
    )  # fmt: skip
    for how in ways:
        x = {**PLAIN, **how}
        state = torch.tensor([1, 0], device=DEVICE)
        want = definition.sample(logits.double(), state, None, *x.values())
        assert torch.equal(drawn(rung, logits, **how), want), how


@pytest.mark.cover
@pytest.mark.parametrize("rung", ("native", "cuda_block", "cuda_histogram"))
def test_equal_logits_are_kept_or_left_out_together(rung):
    row = torch.tensor([0.0, 2.0, -0.0, 2.0, 1.0, 1.0, -3.0, 1.0], device=DEVICE)
    rows = row.expand(120 if rung == "cuda_histogram" and DEVICE == "cpu" else 300, 8).contiguous()
    for how, kept in (
        ({"top_k": 1.0}, {1, 3}),
        ({"top_k": 3.0}, {1, 3, 4, 5, 7}),
        ({"top_k": 6.0}, {0, 1, 2, 3, 4, 5, 7}),
        ({"top_p": 0.1}, {1, 3}),
        ({"top_p": 0.65}, {1, 3, 4, 5, 7}),
    ):
        assert set(drawn(rung, rows, **how).tolist()) == kept, how


@pytest.mark.cover
@pytest.mark.parametrize("rung", RUNGS)
def test_rows_with_nothing_and_with_infinities(rung):
    inf, nan = math.inf, math.nan
    rows = torch.tensor(
        [[-inf, -inf, nan], [nan, 1.0, -inf], [inf, 5.0, nan], [-inf, -inf, -inf]], device=DEVICE
    )
    how = {} if rung == "cuda_gumbel" else {"top_p": 0.5}
    assert drawn(rung, rows, **how).tolist() == [-1, 1, 0, -1]
    assert drawn(rung, rows, **how, temperature=0.0).tolist() == [-1, 1, 0, -1]


def adversarial_rows(columns):
    """Rows whose logits lie in few bins of a histogram, or in none."""
    x = randn(8, columns, seed=9).double()
    x[0] = 2.5  # all equal
    x[1] = (x[1] * 2).round()  # many equal
    x[2] *= 1e-6  # all in one bin
    x[3] *= 300  # few within reach of the maximum
    x[4] += 1e4  # spacings of the logits wider than bins
    x[5, ::2] = torch.finfo(torch.float32).min
    x[6] = x[6].sort(descending=True).values
    x[7, 1:] = -math.inf
    return x.float()


@pytest.mark.cover
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.long)]
)
def test_a_histogram_brackets_thresholds(dtype):
    logits = adversarial_rows(700).to(dtype)
    state = torch.tensor([3, 8], device=DEVICE)
    for how in (
        {"top_k": 699.0}, {"top_k": 1.0, "top_p": 1e-6}, {"top_k": 90.0, "temperature": 0.01},
        {"top_k": 300.0, "top_p": 0.7}, {"top_p": 1e-6}, {"top_p": 0.2, "temperature": 50.0},
        {"top_p": 0.999, "min_p": 0.3}, {"top_p": 0.5, "temperature": 1e-30},
    ):  # fmt: skip
        want = definition.sample(logits.double(), state, None, *{**PLAIN, **how}.values())
        assert torch.equal(drawn("cuda_histogram", logits, seed=3, offset=8, **how), want), how


def test_rows_have_their_own_numbers_and_generators_advance():
    logits = randn(2, 3, 50)
    k = torch.tensor([1, 2, 0])
    g = torch.Generator(DEVICE).manual_seed(2)
    found = kw.sample(logits, torch.tensor([[0.0], [1.0]]), k, generator=g)
    assert found.shape == (2, 3) and torch.equal(found[0], logits[0].argmax(-1))
    assert found[1, 0] == logits[1, 0].argmax()
    one, two = (kw.sample(logits, generator=g.manual_seed(5)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(kw.sample(logits, generator=g), two)
    assert kw.sample(logits[0, 0], top_k=1) == logits[0, 0].argmax()
    assert kw.sample(logits[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"temperature": -1.0}, "temperature: must be finite"),
        ({"temperature": math.nan}, "temperature: must be finite"),
        ({"top_k": -1}, "top_k: must be not negative"),
        ({"top_p": 0.0}, "top_p: must be above 0"),
        ({"min_p": 1.5}, "min_p: must be between"),
        ({"top_p": torch.ones(3)}, r"top_p: of shape \(3,\), does not broadcast to \(2,\)"),
    ],
)
def test_what_is_wrong_is_named(changes, says):
    with pytest.raises(ValueError, match=says):
        kw.sample(torch.zeros(2, 4), **changes)


def test_logits_are_checked():
    with pytest.raises(ValueError, match="logits: have no tokens"):
        kw.sample(torch.zeros(2, 0))
    with pytest.raises(TypeError, match="logits: must be floating point"):
        kw.sample(torch.zeros(2, 4, dtype=torch.int64))


@gpu
def test_each_replay_draws_other_tokens():
    logits, g = torch.zeros(64, 1000, device=DEVICE), torch.Generator(DEVICE).manual_seed(1)
    kw.sample(logits, top_k=50, generator=g)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(g)
    with torch.cuda.graph(graph):
        token = kw.sample(logits, top_k=50, generator=g)
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(token.clone())
    assert not torch.equal(*seen)
