"""The benchmark of serving: arrivals, figures, and the bytes of a step."""

import math
import random

import pytest
import torch

from kernelwright import models
from kernelwright.support.errors import UsageError
from kernelwright.workbench.serving import result, roof
from kernelwright.workbench.serving.drive import Run, Served
from kernelwright.workbench.serving.workload import Workload, lengths


def test_requests_and_arrivals_follow_from_the_seed():
    seed = random.randrange(10**6)
    workload = Workload(2000, 3, 12, seed)
    requests = workload.draw(50, 64)
    assert requests == Workload(2000, 3, 12, seed).draw(50, 64)
    assert {len(r.prompt) for r in requests} == {r.max_tokens for r in requests} == {*range(3, 13)}
    assert max(max(r.prompt) for r in requests) == 49
    times = workload.arrivals(4.0)
    assert times == sorted(times) and times[-1] / 2000 == pytest.approx(1 / 4, rel=0.15)
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    # of a Poisson process, gaps are exponential: their deviation is their mean
    assert torch.tensor(gaps).std().item() == pytest.approx(1 / 4, rel=0.2)
    assert set(workload.arrivals(math.inf)) == {0.0}
    with pytest.raises(UsageError, match="exceed the model's context of 20"):
        workload.draw(50, 20)


def test_usual_lengths_fit_the_context():
    assert lengths(4096) == lengths(2048) == (100, 1024)
    for context in (2, 3, 64, 1024):
        shortest, longest = lengths(context)
        assert 1 <= shortest <= longest <= context / 2


def test_figures_of_a_run():
    served = [Served(10, 0.0, 0.5, 2.5, 5), Served(6, 1.0, 1.1, 1.1, 1)]
    row = result.row(Run(served, 4.0, 3.0, 8, 1), 2.0, result.Limits(400, 600), 0.5)
    assert (row.served, row.generated, row.total) == (0.5, 1.5, 5.5)
    assert (row.first.mean, row.per_token.p50, row.whole.p50) == pytest.approx((300, 500, 1300))
    assert row.tokens_per_step == 22 / 8
    assert row.good == 0.25  # the first one's first token was late
    assert result.row(Run(served, 4.0, 3.0, 8, 1), 2.0, result.Limits(500, 499), 0).good == 0.25
    assert result.row(Run(served, 4.0, 3.0, 8, 1), 2.0, result.Limits(500, 500), 0).good == 0.5


def test_bytes_of_steps():
    for name, tied in [("llama-tiny", True), ("gpt2-tiny", True), ("llama-tiny", False)]:
        config = models.preset(name, tied=tied)
        model = models.build(config).to(torch.bfloat16)
        weights = sum(p.numel() for n, p in model.named_parameters() if n != "positions")
        if not tied:
            weights -= config.vocabulary * config.width
        assert roof.weight_bytes(model) == 2 * weights
    # three tokens after a prompt of ten: the prompt's keys, then 11, then 12
    served = Served(10, 0.0, tokens=3)
    assert roof.keys_read(served, 0) == 10 + 11 + 12 and roof.keys_read(served, 11) == 10 + 11 + 11
    least = roof.Roof(weights=1000, token=20, windows=(0, 11), rate=1e4)
    run = Run([served], 9.0, 2.0, 3, 0)
    assert least.share(run) == pytest.approx((3000 + 330 + 320) / 1e4 / 2.0)
