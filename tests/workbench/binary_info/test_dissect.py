"""dissect: accesses with a known cost, the record, and the comparison with a GPU's counters."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kernelwright
from kernelwright import emulator, toolchain
from kernelwright.contract import CudaKernel, Launch, Operator, Plan, TensorSpec
from kernelwright.dispatch import ladder, source_hash
from kernelwright.emulator.dissect import Dissection, branches
from kernelwright.emulator.dissect.branches import Node
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.records import records
from support.paths import FIXTURES
from support.planning import CPU
from tools import counters, dissect_tables, dissect_vs_ncu

PATTERNS = FIXTURES / "emulated" / "patterns.cu"
pytestmark = pytest.mark.skipif(
    bool(emulator.missing("dissected")), reason=str(emulator.missing("dissected"))
)

#: kernel: (kind, memory, requests, lanes, sectors, passes, conflicts) of each access.
COSTS = {
    "coalesced": [("load", "x", 1, 32, 4, 0, 0), ("store", "y", 1, 32, 4, 0, 0)],
    "shifted": [("load", "x", 1, 32, 5, 0, 0), ("store", "y", 1, 32, 4, 0, 0)],
    "apart": [("load", "x", 1, 32, 32, 0, 0), ("store", "y", 1, 32, 4, 0, 0)],
    "same": [("load", "x", 1, 32, 1, 0, 0), ("store", "y", 1, 32, 4, 0, 0)],
    "vectors": [("load", "x", 1, 32, 16, 0, 0), ("store", "y", 1, 32, 16, 0, 0)],
    "atomics": [("load", "x", 1, 32, 1, 0, 0), ("atomic", "y", 1, 32, 1, 0, 0)],
    "banks<1>": [("load", "shared", 1, 32, 0, 1, 0), ("store", "shared", 1, 32, 0, 1, 0)],
    "banks<2>": [("load", "shared", 1, 32, 0, 2, 1), ("store", "shared", 1, 32, 0, 2, 1)],
    "banks<32>": [("load", "shared", 1, 32, 0, 32, 31), ("store", "shared", 1, 32, 0, 32, 31)],
    "banks<33>": [("load", "shared", 1, 32, 0, 1, 0), ("store", "shared", 1, 32, 0, 1, 0)],
    "banks<0>": [("load", "shared", 1, 32, 0, 1, 0), ("store", "shared", 1, 32, 0, 1, 0)],
    "wide<float2, 1, 1>": [("load", "shared", 1, 32, 0, 2, 0)],
    "wide<float2, 1, 2>": [("load", "shared", 1, 32, 0, 4, 2)],
    "wide<float2, 2, 1>": [("load", "shared", 1, 32, 0, 1, 0)],
    "wide<float4, 1, 1>": [("load", "shared", 1, 32, 0, 4, 0)],
    "wide<float4, 1, 2>": [("load", "shared", 1, 32, 0, 8, 4)],
    "wide<float4, 2, 1>": [("load", "shared", 1, 32, 0, 2, 0)],
    "elements": [("load", "shared", 1, 32, 0, 4, 0)],
    "copied": [
        ("async load", "x", 1, 32, 4, 0, 0),
        ("async store", "shared", 1, 32, 0, 1, 0),
        ("load", "shared", 1, 32, 0, 1, 0),
        ("store", "y", 1, 32, 4, 0, 0),
    ],
    "rounds": [("load", "x", 3, 48, 12, 0, 0), ("store", "y", 1, 32, 4, 0, 0)],
    "turns": [("load", "x", 4, 32, 16, 0, 0), ("store", "y", 1, 32, 4, 0, 0)],
    "leaves": [("load", "x", 1, 16, 2, 0, 0), ("store", "y", 1, 16, 2, 0, 0)],
}
#: kernel: how often its lanes diverge.
PARTED = {"coalesced": 0, "selects": 0, "halves": 1, "rounds": 3, "turns": 4, "leaves": 1}


@pytest.fixture(scope="module")
def patterns():
    names = sorted({*COSTS, *PARTED})
    with emulator.mode("dissected"):
        emulator.ensure(CudaKernel(PATTERNS, n) for n in names)
    return {name: _dissected(name) for name in names}


def _dissected(kernel):
    operator = Operator(
        name="pattern",
        schema="(Tensor x) -> (Tensor y)",
        reference=lambda x: x,
        inputs=lambda c, device: {},
        cases=(),
        cost=lambda x: None,
        outputs=lambda x: (TensorSpec.contiguous((128,), torch.float32),),
    )
    launch = Launch(CudaKernel(PATTERNS, kernel), (1, 1, 1), ("x", "y"), (32, 1, 1))
    x = torch.arange(256, dtype=torch.float32)
    specs = {"x": TensorSpec.contiguous((256,), torch.float32)}
    look = Dissection()
    with look.mode():
        run = toolchain.executor(Plan((launch,)), operator, specs, (), CPU)
    (found,) = look.call(run, {"x": x})
    return found


@pytest.mark.parametrize("kernel", COSTS)
def test_an_access_is_counted_as_a_warp_makes_it(patterns, kernel):
    found = patterns[kernel].accesses
    costs = [
        (a.kind, a.memory, a.requests, a.lanes, a.sectors, a.passes, a.conflicts) for a in found
    ]
    for wanted in COSTS[kernel]:
        assert wanted in costs


@pytest.mark.parametrize("kernel", PARTED)
def test_lanes_diverge_where_a_branch_has_accesses(patterns, kernel):
    assert sum(b.parted for b in patterns[kernel].branches) == PARTED[kernel]


def test_sides_that_only_compute_do_not_make_a_branch():
    calm = {1: Node((2, 3), False), 2: Node((3,), False), 3: Node((), True)}
    assert branches.find_branches(calm) == (set(), {2})
    touching = {**calm, 2: Node((3,), True)}
    assert branches.find_branches(touching) == ({1}, set())
    round_and_round = {**calm, 2: Node((2, 3), False)}
    assert 1 in branches.find_branches(round_and_round)[0]


def test_lines_are_the_sources_and_vectors_are_one_access(patterns):
    (load,) = [a for a in patterns["vectors"].accesses if a.kind == "load"]
    text = PATTERNS.read_text().splitlines()
    assert "load_streaming" in text[load.place.line - 1] and load.width == 16
    assert load.place.inside[0].startswith("vec.cuh:")


def test_distinct_sectors_are_counted_once():
    # `rounds` requests the same sectors repeatedly
    memory = {m.name: m for m in _dissected("rounds").memory}
    assert (memory["x"].sectors_read, memory["y"].sectors_written) == (4, 4)


# ---- the record


@pytest.mark.parametrize("name", ["sum.cuda_vec16", "sum.cuda_last_block"])
def test_the_record_is_what_dissect_finds_today(name):
    operator, _, rung = name.rpartition(".")
    lad = ladder(operator)
    case = lad.operator.case(dissect.RECORDED[operator][1])
    (kept,) = [
        d for d in dissect.load() if (d.operator, d.rung, d.case) == (operator, rung, case.id)
    ]
    found = dissect.dissect(lad, lad.rung(rung), case)
    assert [dissect.words(x) for x in found.launches] == [dissect.words(x) for x in kept.launches]
    assert (found.cost, found.distinct, found.parted) == (kept.cost, kept.distinct, kept.parted)


def test_the_record_is_of_the_present_sources():
    stale = [
        f"{d.operator}.{d.rung}"
        for d in dissect.load()
        if source_hash(ladder(d.operator), ladder(d.operator).rung(d.rung)) != d.hash
    ]
    assert not stale, (
        f"kernelwright dissect {' '.join(stale)} --case ... --record brings it up to date"
    )


def test_every_cuda_rung_that_runs_here_is_recorded():
    kept = {(d.operator, d.rung, d.case) for d in dissect.load()}
    for operator, cases in dissect.RECORDED.items():
        lad = ladder(operator)
        for rung in lad.rungs:
            small = lad.operator.case(cases[0])
            if rung.backend == "cuda" and dissect.takes(lad, rung, small):
                assert all((operator, rung.name, c) in kept for c in cases), rung.name


def test_each_step_of_the_sum_ladder_fixes_its_fault():
    found = {d.rung: d for d in dissect.load() if d.case == "1048576-f32-dim=None"}
    interleaved, strided, sequential = (
        found[f"cuda_{n}"] for n in ("interleaved", "strided", "sequential")
    )
    assert interleaved.parted > 5 * strided.parted and not interleaved.conflicts
    assert strided.conflicts > strided.passes / 2 and not sequential.conflicts
    assert found["cuda_first_add"].passes <= sequential.passes / 2 + 300
    assert found["cuda_vec16"].passes < found["cuda_grid_stride"].passes / 2


def test_a_rung_that_is_not_cuda_is_refused():
    with pytest.raises(ValueError, match=r"softmax\.triton_row is triton"):
        dissect.dissect(ladder("softmax"), ladder("softmax").rung("triton_row"))


def test_a_record_survives_its_file(tmp_path):
    kept = dissect.load()[:2]
    dissect.save(kept, tmp_path)
    assert dissect.load(tmp_path) == tuple(sorted(kept, key=lambda d: (d.operator, d.rung, d.case)))


# ---- compared with a GPU


def test_every_difference_from_the_gpus_counters_is_explained():
    pairs = dissect_vs_ncu.pairs(dissect.load(), counters.load(records.REFERENCE_MACHINE))
    assert {p.operator for p in pairs} == set(dissect.RECORDED)
    assert not dissect_vs_ncu.unexplained(pairs) and not dissect_vs_ncu.stale(pairs)


def test_what_the_gpu_calls_conflicts_is_all_that_keeps_wavefronts_apart():
    pairs = dissect_vs_ncu.pairs(dissect.load(), counters.load(records.REFERENCE_MACHINE))
    by_key = {(*p.key[:2], p.case, p.word): p for p in pairs}
    checked = 0
    for (operator, rung, case, word), conflicts in by_key.items():
        if dissect_vs_ncu.EXPLANATIONS.get(conflicts.key) == dissect_vs_ncu.BUSY and word.endswith(
            "conflicts"
        ):
            waves = by_key[operator, rung, case, word.replace("conflicts", "wavefronts")]
            assert waves.found - conflicts.found == waves.counted - conflicts.counted
            checked += 1
    assert checked > 10


def _counted(d, **changes):
    (launch,) = [dissect.words(x) for x in d.launches]
    return counters.Counted(d.operator, d.rung, d.hash, d.case, 0, "k", {**launch, **changes})


def test_a_difference_needs_its_explanation(monkeypatch):
    d = next(d for d in dissect.load() if d.rung == "cuda_warp" and d.operator == "softmax")
    sectors = dissect.words(d.launches[0])["global_load_sectors"]
    same, other = _counted(d), _counted(d, global_load_sectors=2 * sectors)
    monkeypatch.setattr(dissect_vs_ncu, "EXPLANATIONS", {})
    assert not dissect_vs_ncu.unexplained(dissect_vs_ncu.pairs([d], [same]))
    (missing,) = dissect_vs_ncu.unexplained(dissect_vs_ncu.pairs([d], [other]))
    assert missing.word == "global_load_sectors" and missing.difference == -0.5
    monkeypatch.setattr(dissect_vs_ncu, "EXPLANATIONS", {missing.key: "merged"})
    assert not dissect_vs_ncu.unexplained(dissect_vs_ncu.pairs([d], [other]))
    assert dissect_vs_ncu.stale(dissect_vs_ncu.pairs([d], [same])) == [missing.key]


def test_counters_of_another_source_are_not_compared():
    d = next(d for d in dissect.load() if d.rung == "cuda_warp")
    assert not dissect_vs_ncu.pairs([d], [replace(_counted(d), hash="another")])


def test_the_tables_hold_every_rung_and_name_their_reasons():
    rows, reasons = dissect_tables.counted("sum", records.REFERENCE_MACHINE)
    assert {r[0] for r in rows[1:]} >= {"`cuda_interleaved`", "`cuda_flagged`"}
    assert reasons and not any("not explained" in reason for reason in reasons)
    steps = dissect_tables.steps("sum", records.REFERENCE_MACHINE, ())
    assert len(steps) == len({d.rung for d in dissect.load() if d.operator == "sum"}) + 1


# ---- what is shown


def test_the_margin_names_what_costs():
    path = ladder("sum").folder / "cuda_strided.cu"
    notes, calls = dissect.notes(path)
    line = next(i for i, t in enumerate(path.read_text().splitlines(), 1) if "s[pair] +=" in t)
    assert notes[line].bad == {"conflicts"} and "passes each" in notes[line].detail
    assert calls == ("sum on 1048576-f32-dim=None",)


def _command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "kernelwright", "dissect", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(kernelwright.__file__).parents[1])},
    )


@pytest.mark.long
def test_the_command_line():
    shown = _command("sum.cuda_strided")
    assert shown.returncode == 0, shown.stderr
    assert "s[pair] += s[pair + step]" in shown.stdout and "conflicts" in shown.stdout
    (document,) = json.loads(_command("sum.cuda_strided", "--json").stdout)
    assert document["rung"] == "cuda_strided" and document["launches"][0]["accesses"]
    refused = _command("softmax.triton_row")
    assert refused.returncode == 2 and "softmax.triton_row is triton" in refused.stderr
