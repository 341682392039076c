"""Selection by the tuned table, and by the heuristic if the table has no entry."""

import json
import re

import pytest
import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import ladder, ladders, proof, selection, specs_of
from kernelwright.dispatch.selection import shipped_tables
from kernelwright.workbench import inspection
from kernelwright.workbench.verify import coverage
from support.paths import ROOT

SOFTMAX = ladder("softmax")
TABLE = json.loads((shipped_tables(SOFTMAX) / "softmax.sm_90.json").read_text())["buckets"]


def specs(rows, cols):
    return {"x": TensorSpec.contiguous((rows, cols), torch.bfloat16), "dim": -1}


@pytest.mark.parametrize("rung", ["cuda_warp", "cuda_block", "triton_row"])
def test_a_rung_asked_for_by_name_has_its_tuned_config(rung, monkeypatch):
    call = specs(32768, 1024)
    bucket = SOFTMAX.bucket(**call)
    assert (
        selection.config_of(SOFTMAX, SOFTMAX.rung(rung), H200, call)
        == (TABLE[bucket]["configs"][rung])
    )
    other = next(c for c in SOFTMAX.rung(rung).configs if c != TABLE[bucket]["configs"][rung])
    table = {bucket: {"rung": rung, "configs": {rung: other}}}
    monkeypatch.setattr(selection, "tuned_table", lambda lad, gpu: table)
    assert selection.config_of(SOFTMAX, SOFTMAX.rung(rung), H200, call) == other


def test_a_size_without_a_bucket_takes_the_heuristic():
    call, rung = specs(3, 40), SOFTMAX.rung("cuda_warp")
    assert SOFTMAX.bucket(**call) not in TABLE
    config = selection.config_of(SOFTMAX, rung, H200, call)
    assert config == selection.config_for(rung, H200, call)


@pytest.mark.parametrize("lad", ladders(), ids=lambda lad: lad.name)
def test_a_case_looks_the_same_without_data(lad):
    """On the meta device, where bench cases of gigabytes need no memory."""
    operator = lad.operator
    for case in coverage.thorough_cases(lad):
        made, _ = operator.normalise(specs_of(operator.inputs(case, "cpu")))
        assert inspection.specs_of(lad, case) == made, case.id


def test_an_order_without_rungs_cites_a_measurement():
    """Else PyTorch is dispatched beside a proven rung for no known reason."""
    without_reason = set()
    for one in ladders():
        cases = (c for c in one.operator.cases if c.use != "big")
        proven = [r for r in one.rungs if r.is_gpu and r.dispatchable and proof.proven_on(one, r)]
        if not proven or any(one.order(H200, **inspection.specs_of(one, case)) for case in cases):
            continue
        cited = re.search(r"records/[\w./-]+\w", one.order.__doc__ or "")
        if cited is None or not (ROOT / cited[0]).exists():
            without_reason.add(one.name)
    assert not without_reason
