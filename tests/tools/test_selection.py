"""The fit to a sweep of few rows, and when it is used for dispatch."""

import json
import random
from dataclasses import replace

import pytest
import torch

from kernelwright.contract import H200, TensorSpec
from kernelwright.contract.symbolic_int import Trace
from kernelwright.dispatch import fitted, selection, source_hash
from kernelwright.toolchain import availability
from tools import selection as tool

LADDER = tool.ladder("layer_norm")
SMALL, LARGE = 'cuda_block {"vectors": 2}', 'cuda_cluster {"blocks": 8, "rows": 1, "vectors": 8}'


def row(rows: int, columns: int, rng: random.Random) -> dict:
    """`SMALL` is best below 4,096 columns, `LARGE` above, with at most 16 rows."""
    large = columns > 4096 and rows <= 16
    us = {SMALL: 4.0 if large else 2.0, LARGE: 2.5 if large else 5.0, "native": 6.0}
    us = {name: t * rng.uniform(0.98, 1.02) for name, t in us.items()}
    return {"operator": "layer_norm", "rows": rows, "columns": columns, "own": SMALL, "us": us}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(fitted, "FOLDER", tmp_path / "fitted")
    fitted._leaves.cache_clear()
    yield tmp_path
    fitted._leaves.cache_clear()


def sweep(folder, rows):
    sources = {f"layer_norm.{r.name}": source_hash(LADDER, r) for r in LADDER.rungs}
    document = {"dtype": "bfloat16", "capability": [9, 0], "sources": sources, "rows": rows}
    path = folder / "sweep.json"
    path.write_text(json.dumps(document))
    return path


def call(rows, columns, dtype=torch.bfloat16):
    x, w = (TensorSpec.contiguous(s, dtype) for s in ((rows, columns), (columns,)))
    return {"x": x, "weight": w, "bias": w, "eps": 1e-5}


def every_row():
    rng = random.Random(0)
    return [row(r, c, rng) for r, c in tool.shapes(0)]


def test_a_tree_generalizes_and_is_dispatched(folder, monkeypatch, capsys):
    tool.fit(sweep(folder, every_row()))
    assert "not written" not in capsys.readouterr().out
    monkeypatch.setattr(selection, "gpu_of", lambda device: H200)
    monkeypatch.setattr(availability, "missing", lambda *_: None)
    device = torch.device("cuda", 0)
    for rows, columns, rung in ((16, 7168, "cuda_cluster"), (3, 9216, "cuda_cluster"),
                                (200, 7168, "cuda_block"), (16, 2048, "cuda_block")):  # fmt: skip
        chosen = selection.select(LADDER, call(rows, columns), device, None)
        assert (chosen.rung.name, "fitted" in chosen.why) == (rung, True)
    x = call(16, 7168)["x"]
    for other in (
        call(300, 7168),  # more rows than were measured
        call(16, 7168, torch.float16),
        call(16, 7170),
        {**call(16, 7168), "x": replace(x, strides=(8192, 1))},
        {**call(16, 7168), "x": replace(x, align=8)},
    ):
        assert fitted.choice(LADDER, H200, other) is None
    assert fitted.choice(LADDER, replace(H200, capability=(10, 0)), call(16, 7168)) is None


def test_a_leaf_of_a_kernel_that_has_changed_is_not_used(folder, monkeypatch):
    tool.fit(sweep(folder, every_row()))
    was = fitted.source_hash
    changed = lambda ladder, rung: "" if rung.name == "cuda_cluster" else was(ladder, rung)  # noqa: E731
    monkeypatch.setattr(fitted, "source_hash", changed)
    assert fitted.choice(LADDER, H200, call(16, 7168)) is None
    assert fitted.choice(LADDER, H200, call(200, 7168)) is not None


def test_a_leaf_holds_for_a_range_of_open_rows(folder):
    tool.fit(sweep(folder, every_row()))
    trace = Trace({"n0": 5})
    n = trace.size("n0")
    found = fitted.choice(LADDER, H200, call(n, 7168))
    assert found is not None and found[0].name == "cuda_cluster"
    guard = trace.guard()
    assert [m for m in (1, 16, 17, 256, 257) if guard(m) is None] == [1, 16]


def test_what_is_not_better_is_not_written(folder, capsys):
    rng = random.Random(1)
    alike = [row(r, 1024, rng) for r in range(1, 60)]
    tool.fit(sweep(folder, alike))
    assert "not written" in capsys.readouterr().out
    assert fitted.choice(LADDER, H200, call(16, 1024)) is None


def test_a_config_that_launches_the_same_has_the_same_time():
    specs, rung = call(16, 1024), LADDER.rung("cuda_block")
    tried = [tool.Tried("", "", "cuda_block", {"vectors": v}, us) for v, us in ((4, 3.0), (2, 2.0))]
    times = tool.times(LADDER, specs, tried)
    alike = tool.plan_of(LADDER, rung, specs, config={"vectors": 8}).launches
    for v, us in ((4, 3.0), (2, 2.0)):
        if tool.plan_of(LADDER, rung, specs, config={"vectors": v}).launches == alike:
            assert times[tool.label("cuda_block", {"vectors": 8})] == us
            break
    else:
        assert tool.label("cuda_block", {"vectors": 8}) not in times
