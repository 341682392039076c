"""verify's verdict on a whole rung, and the ledger's on records."""

import json
import re
from dataclasses import replace

import pytest
import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import Ladder, Rung, UnknownRung, case
from kernelwright.dispatch import UnknownOperator, ladder, ladders, source_hash
from kernelwright.workbench.records import ledger, records
from kernelwright.workbench.verify import verify
from kernelwright.workbench.verify.coverage import skip
from kernelwright.workbench.verify.large_tensors import differs
from kernelwright.workbench.verify.verify import Outcome, Row, VerifyResult

SOFTMAX = ladder("softmax")


def made_up(*rungs, cases=None):
    """A ladder of softmax with the entries of wrong/rungs.py."""
    op = replace(SOFTMAX.operator, cases=cases or SOFTMAX.operator.cases)
    native = Rung("native", "torch", "rungs:right", "")
    return Ladder(op, (*rungs, native), "wrong", SOFTMAX.order, SOFTMAX.bucket)


def row_of(entry, cases=None, **how):
    rung = Rung("made_up", "torch", f"rungs:{entry}", "", **how)
    return verify.verify_rung(made_up(rung, cases=cases), rung, {})


def test_a_right_rung_passes_every_case_that_runs():
    row = row_of("right")
    assert (row.outcome, row.failures) == ("pass", ())
    assert row.passed + sum(row.skipped.values()) == len(SOFTMAX.operator.cases)
    assert row.worst.error.worst <= row.worst.budget.worst


def test_a_wrong_rung_names_its_first_case_and_check():
    row = row_of("zeros")
    assert row.outcome == "wrong"
    assert row.why.startswith(f"{row.failures[0].case.id}: value: y: ")
    assert verify.usage(row.worst) > 1


def test_a_rung_that_raises_is_an_error_and_not_unsupported():
    row = row_of("raises")
    assert row.outcome == "error"
    assert re.search(r"ArithmeticError: no softmax today \(rungs\.py:\d+\)$", row.why)


def test_a_rung_that_supports_nothing_says_why():
    row = row_of("right", supports=lambda gpu, **specs: "not on a Tuesday")
    assert (row.outcome, row.why, row.passed) == ("unsupported", "not on a Tuesday", 0)


def test_an_operator_without_cases_runs_nothing():
    rung = Rung("made_up", "torch", "rungs:right", "")
    big = (case((2**16, 2**16), torch.float32, use="big", dim=-1),)
    row = verify.verify_rung(made_up(rung, cases=big), rung, {})
    assert row.outcome == ("unsupported" if verify.here() == "cpu" else "pass")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (("pass", "pass"), 0),
        (("pass", "unsupported", "compiled"), 0),
        (("pass", "wrong"), 1),
        (("compiled", "error"), 1),
        (("compiled", "unsupported"), 3),
        ((), 3),
    ],
)
def test_exit_codes(outcomes, code):
    c = SOFTMAX.operator.cases[0]
    rows = [
        Row("softmax", f"r{i}", "torch", {}, "", o, passed=int(o == "pass"),
            failures=(Outcome(o, c),) if o in ("wrong", "error") else ())
        for i, o in enumerate(outcomes)
    ]  # fmt: skip
    result = VerifyResult(tuple(rows))
    assert result.exit_code == code
    assert result.ok == (code == 0)


def test_selection():
    def names(*selection):
        return {f"{x.name}.{r.name}" for x, r in verify.chosen(selection)}

    assert names("softmax.triton_row") == {"softmax.triton_row"}
    assert names("softmax.backward.triton_row") == {"softmax.backward.triton_row"}
    family = {f"{n}.{r}" for n in ("softmax", "softmax.backward") for r in ladder(n).names}
    assert names("softmax") == family
    assert names("softmax.backward") == {n for n in family if ".backward." in n}
    assert names() == {f"{x.name}.{r}" for x in ladders() for r in x.names}
    assert verify.chosen(["softmax", "softmax.manual"]) == verify.chosen(["softmax"])
    with pytest.raises(UnknownOperator, match="'sotfmax'"):
        verify.chosen(["sotfmax"])
    with pytest.raises(UnknownOperator, match="'sotfmax'"):
        verify.chosen(["sotfmax.native"])
    with pytest.raises(UnknownRung, match="'nope'"):
        verify.chosen(["softmax.nope"])


def test_a_row_becomes_a_record_of_all_cases():
    row = row_of("zeros", (case((5, 33), torch.float32, dim=-1),))
    record = row.record("cpu-here", "run")
    assert (record.case, record.outcome, record.hash) == ("*", "wrong", row.hash)
    assert record.error["worst"] > record.budget["worst"]
    assert "0 cases passed" not in row_of("right").record("cpu-here", "run").why
    assert replace(row, outcome="compiled").record("cpu-here", "run") is None


def test_every_skip_has_a_reason_and_every_rung_runs_or_compiles_something():
    for x, rung in verify.chosen():
        reasons = [skip(x, rung, rung.configs[0], c, verify.here()) for c in x.operator.cases]
        assert all(r is None or r.strip() for r in reasons)
        assert None in reasons or rung.backend == "cuda"


# the ledger

RUNG = SOFTMAX.rung("triton_row")
KEY = "softmax.triton_row"
ERROR = {"norm": 1e-8, "p999": 1.0, "worst": 1.0}


def line(**changes):
    found = {
        "operator": "softmax", "rung": RUNG.name, "case": "*", "machine": "nvidia-h200",
        "run": "r", "outcome": "pass", "hash": source_hash(SOFTMAX, RUNG),
        "config": RUNG.configs[0], "error": ERROR, "budget": dict.fromkeys(ERROR, 4.0),
    }  # fmt: skip
    return {k: v for k, v in {**found, **changes}.items() if v is not None}


@pytest.fixture
def written(tmp_path):
    """Writes lines as records of the H200; returns the records' folder."""

    def write(*lines):
        path = tmp_path / "nvidia-h200" / "softmax.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(x) + "\n" for x in lines))
        path.with_name("runs.jsonl").write_text('{"run": "r"}\n')
        return tmp_path

    return write


def every_config(**changes):
    return [line(config=c, **changes) for c in RUNG.configs]


def test_proven_needs_every_config_of_todays_source(written):
    assert ledger.proven(written(*every_config())) == {
        KEY: {source_hash(SOFTMAX, RUNG): ["nvidia-h200"]}
    }
    for outcome in ("wrong", "error"):
        bad = line(config=RUNG.configs[-1], outcome=outcome)
        assert ledger.proven(written(*every_config()[:-1], bad)) == {}
    unsupported = line(config=RUNG.configs[-1], outcome="unsupported")
    assert KEY in ledger.proven(written(*every_config()[:-1], unsupported))
    assert ledger.proven(written(*every_config()[:-1])) == {}
    assert ledger.proven(written(*every_config(outcome="unsupported"))) == {}
    assert ledger.proven(written(*every_config(hash="another"))) == {}
    assert ledger.proven(written(*every_config(machine="cpu-x86_64-2"))) == {}
    assert ledger.proven(written(*every_config(case="4096x768-f32-dim=-1"))) == {}


def test_the_ledger_shows_stale_proof(written):
    rows = {
        f"{r.operator}.{r.rung}": r for r in ledger.ledger(written(*every_config(hash="old"))).rows
    }
    assert (rows[KEY].proven, rows[KEY].stale) == ((), ("nvidia-h200",))
    rows = {f"{r.operator}.{r.rung}": r for r in ledger.ledger(written(*every_config())).rows}
    assert (rows[KEY].proven, rows[KEY].stale, rows[KEY].carried) == (("nvidia-h200",), (), ())


def test_the_ledger_shows_what_machine_code_proves(written):
    found = ledger.ledger(written(*every_config(carried="old")))
    row = next(r for r in found.rows if f"{r.operator}.{r.rung}" == KEY)
    assert (row.proven, row.carried) == (("nvidia-h200",), ("nvidia-h200",))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hash": "old"}, "another source of softmax.triton_row"),
        ({"rung": "nope"}, "softmax has no rung nope"),
        ({"case": "3x4-f32"}, "no case 3x4-f32"),
        ({"config": {"rows": 7}}, "no config {'rows': 7}"),
        ({"outcome": "wrong", "cold": [1.0]}, "has times, but its outcome is wrong"),
        ({"outcome": "fine"}, "'fine' is not an outcome"),
        ({"run": "s"}, "belongs to the run s, which is not in runs.jsonl"),
        ({"error": {**ERROR, "worst": 5.0}}, "over its budget"),
        ({"error": {**ERROR, "worst": float("nan")}}, "over its budget"),
        ({"budget": None}, "an error without a budget"),
        ({"machine": "nvidia-b200"}, "is of softmax on nvidia-b200"),
    ],
)
def test_check_finds(written, changes, problem):
    found = ledger.check(written(line(**changes)))
    assert [p for p in found if problem in p and p.startswith("nvidia-h200/softmax.jsonl:1: ")]
    assert not [p for p in ledger.check(written(line())) if p.startswith("nvidia-h200/")]


def test_check_finds_defaults_without_proof_and_a_proof_that_is_not_written(written, monkeypatch):
    root = written(*every_config())
    found = ledger.check(root)
    assert any(p.startswith("proven.json does not match the records") for p in found)
    path = ledger.write_proven(root)
    assert json.loads(path.read_text()) == ledger.proven(root)
    found = ledger.check(root)
    assert not any(p.startswith("proven.json") for p in found)
    unproven = [p for p in found if "is unproven, but would be dispatched for" in p]
    assert unproven
    assert not any(p.startswith(f"{KEY} ") for p in unproven)
    assert ledger.ledger(root).exit_code == 1


def test_peers_and_controls_have_no_source_of_ours(written):
    peer = line(rung="peer:liger", hash=None, config=None, budget=None)
    assert not [p for p in ledger.check(written(peer)) if p.startswith("nvidia-h200/")]
    lines = [
        line(rung=name, hash=None, config=None, error=None, budget=None)
        for name in ("peer:liger", "control", "roof:r1w1")
    ]
    assert not [p for p in ledger.check(written(*lines)) if p.startswith("nvidia-h200/")]


def test_shipped_records_can_be_read():
    assert all(r.outcome in records.OUTCOMES for r in records.load())


def test_a_large_result_of_integers_is_pytorchs_bit_for_bit():
    words = torch.arange(1000, dtype=torch.int32)
    assert differs(words, words.clone()) is None
    assert "integers" in str(differs(words, words.flip(0)))


def big(monkeypatch, inputs):
    """What comes of a case of more than 2^31 elements whose inputs are made so."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 << 30, 80 << 30))
    of = ladder("softmax")
    of = replace(of, operator=replace(of.operator, inputs=inputs))
    rung = of.rung("cuda_warp")
    return verify._verify_big(of, rung, rung.configs[0], of.operator.cases[0])


def test_a_large_case_is_skipped_without_memory_and_fails_by_anything_else(monkeypatch):
    def raising(error):
        def inputs(case, device):
            raise error

        return inputs

    found = big(monkeypatch, raising(torch.OutOfMemoryError("CUDA out of memory")))
    assert (found.outcome, found.why) == ("skipped", "needs more than 3 GiB of free GPU memory")
    found = big(monkeypatch, raising(ValueError("dim: is wrong")))
    assert found.outcome == "error" and "dim: is wrong" in found.why
