"""benchmarks/README.md lists every command, and what it lists exists."""

import json
import re

from benchmarks.matmul_model import fit

from kernelwright.ops.matmul.gemm.hopper import cost
from support.paths import ROOT

FOLDER = ROOT / "benchmarks"


def test_the_table_lists_every_command():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `benchmarks\.([\w.]+).*?`(?:, `\.(\w+)`)?", page, re.M)
    names = {name for name, _ in listed} | {f"matmul_model.{also}" for _, also in listed if also}
    files = (p for p in FOLDER.rglob("*.py") if '__name__ == "__main__"' in p.read_text())
    modules = (".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in files)
    assert names == {m.removesuffix(".__main__") for m in modules}


def test_the_cost_model_names_the_versions_that_it_was_fitted_against():
    lines = map(json.loads, fit.RECORDS.read_text().splitlines())
    environments = [row["environment"] for row in lines if "environment" in row]
    assert environments
    for found in environments:
        flat = {**found, "driver": found["gpu"]["driver"]}
        assert cost.FITTED_AGAINST.items() <= flat.items()


def test_the_fit_reads_its_timings():
    """Configs of the present rungs, and plausible estimates of the fastest."""
    timed = fit.records()
    assert len(timed) > 200
    for t in timed[::40]:
        best = min(t.ours, key=t.ours.__getitem__)
        assert 0.5 < fit.estimate(best, t.product, cost.OURS) / t.ours[best] < 2
