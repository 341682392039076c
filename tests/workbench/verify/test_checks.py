"""The emulator's checks: each planted fault is found by its check, with lines and threads; no false
findings; `verify --check`; and barriers deleted from shipped rungs."""

import io
import json
import re

import pytest
import torch
from rich.console import Console
from wrong.planted import PLANTED

from kernelwright import cli, emulator
from kernelwright.cli.render import findings
from kernelwright.contract import CudaKernel
from kernelwright.dispatch import ladder
from kernelwright.emulator import build
from kernelwright.emulator.checks import CHECKS, Watch
from kernelwright.support.errors import CompileError
from kernelwright.workbench.records import records
from kernelwright.workbench.sanitize import report
from kernelwright.workbench.verify.verify import here
from support.paths import ROOT
from tools import mutate

pytestmark = pytest.mark.skipif(
    emulator.missing("watched") is not None, reason=str(emulator.missing("watched"))
)
cpu = pytest.mark.skipif(here() == "cuda", reason="compute-sanitizer answers on a GPU")
KNOWN = {p.kernel: p for p in PLANTED}


@pytest.fixture(scope="module", autouse=True)
def built():
    """The kernels of a file together, in one library."""
    build.ensure([CudaKernel(p.source, p.kernel, p.cluster) for p in PLANTED], "watched")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.kernel)
@pytest.mark.parametrize("seed", [1, 2, 77])
def test_a_planted_fault_is_named_with_its_lines_and_threads(planted, seed):
    found = planted.found(seed)
    if not planted.check:
        assert found == []
        return
    lines = {planted.line(begins) for begins in planted.lines}
    told = [f for f in found if f.check == planted.check and set(f.lines) == lines]
    assert told, found
    assert any(planted.says in f.text for f in told), told


def test_every_check_has_a_fault_to_find():
    assert {p.check for p in PLANTED} - {""} == set(CHECKS)


def test_both_threads_of_a_race_are_named():
    (finding,) = KNOWN["written_twice"].found()
    text = (
        r"races.cu:27: thread (\d+) of block 0 writes bytes \d+ to \d+ of s, "
        r"written by thread (\d+) of block 0 at races.cu:27 with no barrier in between"
    )
    one, other = map(int, re.fullmatch(text, finding.text).groups())
    assert one // 32 + one % 32 == other // 32 + other % 32 and one != other
    assert finding.threads == (f"thread {one} of block 0", f"thread {other} of block 0")


@pytest.mark.parametrize("kernel", ["read_before_written", "lockstep", "shared_never_written"])
def test_a_seed_reproduces_its_findings_and_another_sees_other_threads(kernel):
    planted = KNOWN[kernel]
    assert planted.found(7) == planted.found(7)
    assert {planted.found(seed)[0].threads for seed in range(1, 6)} > {planted.found(1)[0].threads}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_alone_finds_only_what_is_its_own(check):
    for name in ("read_before_written", "reads_one_more", "shared_never_written"):
        found = KNOWN[name].found(checks=(check,))
        assert {f.check for f in found} <= {check}
        assert bool(found) or KNOWN[name].check != check


# ---- the command


def run(capfd, *arguments):
    with pytest.raises(SystemExit) as e:
        cli.main(["verify", *arguments])
    return e.value.code, *capfd.readouterr()


@cpu
def test_verify_with_a_check_calls_a_correct_rung_clean(capfd):
    code, out, _ = run(capfd, "sum.cuda_last_block", "sum.triton_block", "--check", "all")
    assert code == 0
    _, line, other, total = out.strip().splitlines()
    assert re.match(r"clean\tsum.cuda_last_block\t\t\d+\t\d+\traces, bounds, init", line)
    assert re.match(r"unchecked\tsum.triton_block\t.*triton: needs a GPU", other)
    assert re.match(r"# 2 rungs: 0 with findings, 1 clean, 1 unchecked", total)


@cpu
def test_a_seed_runs_one_schedule_and_json_has_every_row(capfd):
    code, out, _ = run(
        capfd, "sum.cuda_strided", "--check", "races,init", "--check", "bounds", "--seed", "5",
        "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert (code, document["ok"], document["seeds"]) == (0, True, [5])
    assert [r["check"] for r in document["rows"]] == ["races", "bounds", "init"]
    assert all(r["schedules"] == r["calls"] > 0 for r in document["rows"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--check", "rac"), "--check rac: choose from races, bounds, init, divergence and all"),
        (("--seed", "3"), "--seed: selects a thread schedule of --check"),
        (("--check", "init", "--seed", "0"), "--seed 0: must be from 1"),
    ],
)
def test_what_cannot_be_asked(capfd, arguments, says):
    code, _, err = run(capfd, "sum", *arguments)
    assert code == 2
    assert says in err


@cpu
def test_a_rung_with_a_fault_is_found_recorded_and_shown(monkeypatch, tmp_path, capfd):
    """sum.cuda_last_warp as in old tutorials, without its first __syncwarp."""
    lad = ladder("sum")
    rung = lad.rung("cuda_last_warp")
    source = lad.folder / "cuda_last_warp.cu"
    barrier = mutate.barriers(source)[0]
    real = report.call_of

    def faulty(*args):
        call = real(*args)
        return call if isinstance(call, str) else mutate.swapped(call, source, copy)

    copy = mutate.mutated(source, barrier)
    monkeypatch.setattr(report, "call_of", faulty)
    (row,) = report.watch_rung(lad, rung, ("races",), (3,))
    assert row.findings
    place = r"cuda_last_warp.cu:(?:17|19), called from cuda_last_warp.cu:\d+"
    memory = r"bytes \d+ to \d+ of dynamic shared memory"
    assert re.match(
        rf"[^ ]+, seed 3: {place}: thread \d+ of block 0 (reads|writes) {memory}, "
        rf"(read|written) by thread \d+ of block 0 at {place} with no __syncwarp in between",
        row.findings[0],
    )
    out = io.StringIO()
    stream = findings.watching([(lad, rung)], ["races"])
    Console(file=out).print(findings.watched(stream, [row]), soft_wrap=True)
    shown = out.getvalue()
    assert "found" in shown and row.findings[0].split(":")[0] in shown
    result = report.Checked((row,))
    assert result.exit_code == 1
    (record,) = result.records("cpu", "run")
    assert (record.case, record.outcome) == ("check:races", "wrong")
    assert f"calls under {report.UNDER}, " in record.why
    records.save([record], {"run": "run", "machine": "cpu"}, tmp_path)


@cpu
def test_unwritten_shared_memory_counts_where_it_reaches_a_result(monkeypatch):
    """softmax.backward.cuda_block reads values past the row's end and then discards them."""
    lad = ladder("softmax.backward")
    rung = lad.rung("cuda_block")
    call = report.call_of(lad, rung, rung.configs[0], lad.operator.case("5x33-bf16-dim=-1"))
    raw = call._run(Watch(("init",), 1))[1]
    assert raw
    assert call.watched(("init",), 1)[1] == []
    monkeypatch.setattr(report, "same_bits", lambda a, b: False)
    assert call.watched(("init",), 1)[1] == raw


@cpu
def test_a_rung_that_does_not_build_is_a_finding(monkeypatch):
    def refuse(kernels):
        raise CompileError("cuda_warp.cu:3: the emulator does not know __nonsense")

    monkeypatch.setattr(emulator, "ensure", refuse)
    lad = ladder("softmax")
    rows = report.watch_rung(lad, lad.rung("cuda_warp"), ("races", "init"), (1,))
    assert rows[0].findings == [
        "CompileError: cuda_warp.cu:3: the emulator does not know __nonsense"
    ]
    assert report.Checked(tuple(rows)).exit_code == 1


@cpu
def test_the_emulator_leaves_types_of_the_same_code_to_gpus():
    lad = ladder("softmax")
    rung = lad.rung("cuda_warp")
    kept, left = report.emulated_runs(lad, rung)
    first = {case.dtype for config, case in kept if config == rung.configs[0]}
    assert first == {torch.float32, torch.bfloat16} and left > 0
    assert {case.dtype for config, case in kept if config != rung.configs[0]} == {torch.float32}


# ---- barriers deleted


def test_every_barrier_of_a_file_is_seen_and_comments_are_not():
    include = ROOT / "src" / "kernelwright" / "include" / "kw"
    texts = [b.text for b in mutate.barriers(include / "last_block.cuh")]
    assert [t.split(";")[0] for t in texts] == [
        "fence()",
        "if (last) fence()",
        "return __syncthreads_or(last)",
    ]
    assert len(mutate.barriers(include / "reduce.cuh")) == 2


def test_a_vote_keeps_its_predicate():
    barrier = mutate.barriers(ROOT / "src/kernelwright/include/kw/last_block.cuh")[2]
    assert "  return (last);\n" in barrier.deleted()


def test_a_mutant_has_headers_of_its_own():
    """Copies of the family's and the shared headers, so that later edits do not affect it."""
    source = ROOT / "src/kernelwright/ops/norm/layer_norm/cuda_cluster.cu"
    copy = mutate.mutated(source, mutate.barriers(source)[0])
    mine, theirs = map(mutate.includes.files, (source, copy))
    assert [p.name for p in mine] == [p.name for p in theirs]
    assert not set(mine) & set(theirs)


SAMPLE = ("sum.cuda_last_warp", "sum.cuda_last_block", "softmax.cuda_block")


@pytest.mark.long
@cpu
def test_deletions_are_detected_as_the_page_says():
    page = (ROOT / "docs" / "mutations.md").read_text()
    assert "a gap in the checks" not in page
    mutants = [mutate.mutate(*at, calls) for at, calls in mutate.calls_by_barrier(SAMPLE).items()]
    assert len(mutants) >= 10
    for m in mutants:
        source = f"| {m.source.parent.name}/{m.source.name} |"
        code = f"{m.barrier.path.name}:{m.barrier.line} `"
        (row,) = [r for r in page.splitlines() if r.startswith(source) and code in r]
        said = ", ".join(m.by) if m.by else m.why
        assert f"| {said} |" in row, (row, m)


@cpu
def test_a_deletion_that_nothing_notices_fails(monkeypatch, capfd):
    monkeypatch.setattr(mutate, "REDUNDANT", {})
    assert mutate.main(["sum.cuda_shuffle"]) == 1
    assert "1 detected" in capfd.readouterr().out
