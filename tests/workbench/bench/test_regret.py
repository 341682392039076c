"""Sampled cases, and the report on them."""

import io
import json
import math
import re

import pytest
import torch
from rich.console import Console

import kernelwright.ops.every  # noqa: F401
from kernelwright.cli.render import regret as shown
from kernelwright.cli.render import terminal
from kernelwright.dispatch import ladder, ladders
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG
from kernelwright.workbench.bench import regret, sampling
from kernelwright.workbench.bench.regret import RegretResult, Sampled

OPERATORS = [x.name for x in ladders() if not x.name.endswith(".backward")]


@pytest.mark.parametrize(
    "name",
    [n if i % 4 == 0 else pytest.param(n, marks=pytest.mark.long) for i, n in enumerate(OPERATORS)],
)
def test_every_operator_can_be_sampled(name):
    ((_, case),) = sampling.sample(ladder(name).operator, 1, 3, 1 << 24)
    assert case.id not in {c.id for c in ladder(name).operator.cases}
    args = ladder(name).operator.inputs(case, "meta")
    assert args.keys() <= {a.name for a in ladder(name).operator.args}


def test_strata_are_what_they_are_called():
    found = sampling.sample(ladder("layer_norm").operator, 40, 0, 1 << 28)
    last = {s: [c.shape[-1] for t, c in found if t == s] for s in sampling.STRATA}
    assert all(len(sizes) == 8 for sizes in last.values())
    assert set(last["model"]) <= {*sampling.WIDTHS, *sampling.VOCABULARIES}
    assert all(n % 64 == 0 for n in last["between"])
    assert all(n % 2 == 1 for n in last["odd"])
    assert all(n <= 256 for n in last["short"])
    assert len({c.shape for _, c in found}) == 40


def test_a_seed_gives_the_same_cases_to_a_forward_and_its_backward():
    for name in ("softmax", "embedding", "swiglu"):
        drawn = [
            sampling.sample(ladder(n).operator, 6, seed, 1 << 26)
            for n, seed in ((name, 5), (name, 5), (f"{name}.backward", 5), (name, 6))
        ]
        assert drawn[0] == drawn[1] == drawn[2] != drawn[3]


def test_sizes_stay_within_bounds():
    operator = ladder("cross_entropy").operator
    for _, case in sampling.sample(operator, 10, 1, 1 << 22, 1 << 18):
        assert 1 << 18 <= case.numel * case.dtype.itemsize <= 1 << 22
    with pytest.raises(sampling.NotSampled, match=r"cross_entropy: 0 of 1 .* not 2 to 1"):
        sampling.sample(operator, 1, 1, 1, 2)


def test_parameters_that_are_sizes_are_drawn_and_others_kept():
    found = [c for _, c in sampling.sample(ladder("matmul").operator, 20, 0, 1 << 28)]
    assert len({c.param("n") for c in found}) > 10
    heads = [c for _, c in sampling.sample(ladder("rope").operator, 20, 0, 1 << 28)]
    for c in heads:
        assert c.param("kv") in (None, 4, 8)
        assert c.shape[1] in (16, 28, 32, 64)


def test_without_a_gpu_what_an_h200_dispatches_is_verified():
    pair = [ladder("gelu"), ladder("gelu.backward")]
    result = regret.regret(pair, count=2, seed=1)
    if torch.cuda.is_available():
        assert result.exit_code == GOOD
        return
    assert result.exit_code == INCONCLUSIVE
    assert result.summary().verified == 4, [r.trouble for r in result.rows]
    assert {r.dispatched.split()[0] for r in result.rows} <= {*ladder("gelu").names}


def test_wrong_results_are_reported(monkeypatch):
    monkeypatch.setattr(regret, "launcher", lambda *_: lambda x, *_: torch.zeros_like(x))
    result = regret.regret([ladder("tanh")], count=1, seed=1)
    assert result.exit_code == WRONG
    assert result.summary().wrong == 1
    assert result.summary().verified == 0


def test_the_summary_is_of_ratios_to_the_best():
    rows = [
        Sampled("a", "1", "odd", "x", "", 2 * regret.LARGE,
                {"dispatched": 10.0, "torch": 20.0, "rung:x": 10.0, "rung:y": 8.0, "roof": 9.0},
                "torch", 0.5),
        Sampled("a", "2", "odd", "x", "", 100, {"dispatched": 10.0, "torch": 8.0, "roof": 1.0},
                "torch", 1.25),
        Sampled("b", "3", "odd", "x", "", trouble={"dispatched": "wrong"}),
    ]  # fmt: skip
    result = RegretResult(0, rows)
    s = result.summary("a")
    assert s.speedup == pytest.approx(math.sqrt(2 * 0.8))
    assert (s.behind, s.slowest, s.regret, s.of_roof) == (0.5, 1.25, 1.25, 0.9)
    assert (s.cases, s.timed, s.wrong) == (2, 2, 0)
    assert [r.case for r in result.worst_first] == ["2", "1", "3"]
    assert result.summary("b").speedup is None
    assert rows[0].best == "rung:y"
    assert result.exit_code == WRONG
    assert RegretResult(0, rows[:2]).exit_code == GOOD
    assert set(result.as_json()["summary"]) == {"*", "a", "b"}
    assert result.summary("b").over_peer == {} == result.summary("b").over_best


def test_the_distribution_of_ratios():
    """The nearest rank among 1.00 to 1.39, in any order of the cases."""
    rows = [
        Sampled("a", str(i), "odd", "x", "", 100,
                {"dispatched": 100.0 + i, "torch": 50.0, "rung:x": 100.0}, "torch", 2 + i / 50)
        for i in reversed(range(40))
    ]  # fmt: skip
    result = RegretResult(0, rows)
    s = result.summary("a")
    assert s.over_best == pytest.approx({50: 1.19, 90: 1.35, 95: 1.37, 99: 1.39})
    assert s.over_peer == pytest.approx({q: 2 * x for q, x in s.over_best.items()})
    assert s.regret == s.over_best[95]
    as_json = json.loads(json.dumps(result.as_json(), default=terminal._plain))
    assert as_json["summary"]["a"]["over_best"]["99"] == pytest.approx(1.39)
    assert as_json["cases"][0]["row"]["case"] == "39"
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown.report(result))
    assert re.search(r"a\s+best config\s+1.190\s+1.350\s+1.370\s+1.390", console.export_text())
