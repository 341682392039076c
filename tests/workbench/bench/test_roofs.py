"""Roofs: the machine's maximum rates, measured by dedicated kernels."""

from __future__ import annotations

import pytest
import torch

from kernelwright.contract import CudaKernel
from kernelwright.machine import clock
from kernelwright.workbench.bench import roofs
from kernelwright.workbench.records.records import Record

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("mix", "on_cpu"),
    [("r1w1", "r1w1"), ("r1w0", "r1w0"), ("r4w3", "r1w1"), ("r5w2", "r3w1"), ("r0w0", "r1w1")],
)
def test_a_mix_without_a_roof_takes_the_nearest(mix, on_cpu):
    assert roofs.nearest(mix, CPU) == on_cpu
    reads, writes = roofs.parse(roofs.nearest(mix, torch.device("cuda")))
    assert reads <= roofs.READS and writes <= roofs.WRITES


@pytest.mark.parametrize("mix", ["r1w0", "r1w1", "r2w1", "r0w1", "r3w1", "r4w3"])
@pytest.mark.parametrize("config", roofs.CONFIGS)
def test_a_stream_covers_every_vector_once(mix, config):
    vectors = 10_007
    made, operator = roofs.plan(*roofs.parse(mix), vectors, config)
    (step,) = made.launches
    assert isinstance(step.kernel, CudaKernel) and step.kernel.source.exists()
    tile = config["unroll"] * config["block"]
    walked = config["waves"] > 0
    assert walked or step.grid[0] * tile >= vectors > (step.grid[0] - 1) * tile
    named = {a.name for a in operator.args} | set(operator.results)
    assert {a for a in step.args if isinstance(a, str)} == named
    assert len(step.args) == roofs.READS + roofs.WRITES + 1


MIXES = ("r1w0", "r2w0", "r1w1", "r0w1", "r2w1", "r3w1")


@pytest.mark.parametrize(
    "mix", [m if m == "r2w1" else pytest.param(m, marks=pytest.mark.long) for m in MIXES]
)
def test_roof_candidates_move_the_bytes_they_say(mix):
    made = roofs.candidates(mix, 1 << 20, CPU)
    assert made
    for c in made:
        assert c.bytes == 1 << 20
        assert len(c.calls) == clock.rotations(1 << 20, CPU)
        c.calls[0]()


def test_roofs_of_a_machine_are_records(monkeypatch):
    monkeypatch.setattr(roofs, "_sizes", lambda device, quick: (roofs.MIB,))
    seen: list[Record] = []
    found = roofs.measure_roofs(CPU, "run", quick=True, on_record=seen.append)
    assert found == seen
    assert {r.rung for r in found} == {
        "roof:r1w0", "roof:r1w1", "roof:r2w1", "roof:r0w1", "roof:matmul", "roof:cache",
        "roof:launch",
    }  # fmt: skip
    assert all(r.cold and r.operator == "roofs" for r in found)
