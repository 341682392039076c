"""renew: records of another machine are merged, and only missing jobs are run."""

import json
import time

import pytest
from tools.renew import Budget, Job

from kernelwright.dispatch import ladder, source_hash
from kernelwright.workbench.bench import tune
from kernelwright.workbench.records import ledger, merge, records
from support import served
from tools import renew

SOFTMAX = ladder("softmax")
RUNG = SOFTMAX.rung("triton_row")
H200 = "nvidia-h200"


def proof(config, run, **changes):
    found = {
        "operator": "softmax", "rung": RUNG.name, "case": "*", "machine": H200, "run": run,
        "outcome": "pass", "hash": source_hash(SOFTMAX, RUNG), "config": config,
    }  # fmt: skip
    return {**found, **changes}


def write(folder, *lines):
    """Write records like a run does to $KW_RECORDS."""
    where = folder / H200
    where.mkdir(parents=True)
    for name in {x["operator"] for x in lines}:
        own = (json.dumps(x) for x in lines if x["operator"] == name)
        (where / f"{name}.jsonl").write_text("".join(f"{x}\n" for x in own))
    environments = ({"run": r, "machine": H200} for r in sorted({x["run"] for x in lines}))
    (where / "runs.jsonl").write_text("".join(json.dumps(e) + "\n" for e in environments))
    return folder


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder in place of the shipped records."""
    monkeypatch.setattr(records, "ROOT", tmp_path / "shipped")
    return tmp_path / "shipped"


def test_a_later_run_wins_and_what_is_proven_is_written(tmp_path, shipped):
    first, *rest = RUNG.configs
    write(tmp_path / "b", proof(first, "2026-b"))
    write(tmp_path / "a", proof(first, "2026-a", outcome="error", why="out of memory"))
    write(tmp_path / "c", *(proof(config, "2026-c") for config in rest))
    found = merge.merge([tmp_path / "b", tmp_path / "a", tmp_path / "c"])
    assert found == merge.Merged(taken=2 + len(rest), stale=0, dropped=0)
    assert {r.outcome for r in records.load(H200, "softmax")} == {"pass"}
    assert set(records.runs(H200)) >= {"2026-a", "2026-b", "2026-c"}
    assert json.loads((shipped / "proven.json").read_text()) == ledger.proven(shipped)
    assert "softmax.triton_row" in ledger.proven(shipped)


@pytest.mark.parametrize(
    "changes",
    [
        {"hash": "another"},
        {"rung": "nope"},
        {"config": {"rows": -1}},
        {"case": "3x4-nope"},
        {"operator": "nope"},
        {"rung": "peer:liger", "case": "3x4-nope"},
    ],
)
def test_records_of_other_sources_are_neither_merged_nor_kept(tmp_path, shipped, changes):
    old = {**proof(RUNG.configs[0], "2026-a"), **changes}
    write(shipped, old, proof(RUNG.configs[-1], "2026-a"))
    found = merge.merge([write(tmp_path / "new", old)])
    assert found == merge.Merged(taken=0, stale=1, dropped=1)
    assert [r.config for r in records.load(H200, "softmax")] == [RUNG.configs[-1]]
    assert not (shipped / H200 / "nope.jsonl").exists()


def test_the_machines_own_limits_are_kept(tmp_path, shipped):
    roof = {"operator": "roofs", "rung": "roof:r1w1", "case": "1024", "config": {}, "hash": ""}
    found = merge.merge([write(tmp_path / "new", {**proof({}, "2026-a"), **roof})])
    assert (found.taken, found.stale) == (1, 0)
    assert not [p for p in ledger.check(shipped) if p.startswith(f"{H200}/roofs")]


def test_documents_that_a_run_writes_whole_are_copied(tmp_path, shipped):
    (tmp_path / "new" / H200).mkdir(parents=True)
    (tmp_path / "new" / H200 / "training.json").write_text("{}")
    assert merge.merge([tmp_path / "new"]) == merge.Merged(taken=1, stale=0, dropped=0)
    assert (shipped / H200 / "training.json").read_text() == "{}"


def test_a_folder_without_records_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"has no records \(no runs.jsonl in it\)"):
        merge.merge([tmp_path])


def test_what_is_proven_is_not_proven_again(shipped, monkeypatch):
    def proved(lad, rung):
        return () if rung.name == "cuda_warp" else (H200,)

    monkeypatch.setattr(renew, "proven_on", proved)
    (job,) = renew.missing("prove", [SOFTMAX], H200)
    assert job == Job("prove-softmax.cuda_warp", ("verify", "softmax.cuda_warp", "--record"))


def test_what_is_timed_is_not_timed_again(tmp_path, shipped):
    cases = [c for c in SOFTMAX.operator.cases if c.use == "bench"]
    lines = [
        proof(
            served.config(SOFTMAX, r, c), "a", rung=r.name, case=c.id, hash=source_hash(SOFTMAX, r)
        )
        for r in SOFTMAX.rungs
        for c in cases
        if r.is_gpu
    ]
    left = {("cuda_warp", cases[2].id), ("triton_row", cases[0].id)}
    write(shipped, *(x for x in lines if (x["rung"], x["case"]) not in left))
    (job,) = renew.missing("time", [SOFTMAX], H200)
    assert "--quick" not in job.words
    assert "--quick" in renew.missing("time", [SOFTMAX], H200, quick=True)[0].words
    assert job.words[:6] == ("bench", "softmax", "--case", cases[0].id, "--case", cases[2].id)
    (shipped / H200 / "softmax.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert renew.missing("time", [SOFTMAX], H200) == []
    serves, _ = renew.served(SOFTMAX, renew.H200, renew.inspection.specs_of(SOFTMAX, cases[1]))
    at = next(x for x in lines if (x["rung"], x["case"]) == (serves.name, cases[1].id))
    at["config"] = next(dict(c) for c in serves.configs if dict(c) != at["config"])
    (shipped / H200 / "softmax.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (job,) = renew.missing("time", [SOFTMAX], H200)  # it is not dispatched with that config
    assert job.words[:4] == ("bench", "softmax", "--case", cases[1].id)


def test_what_is_tuned_is_not_tuned_again(tmp_path, monkeypatch):
    monkeypatch.setattr(renew, "table_of", lambda *_: tmp_path / "table.json")

    def wanted(sources, buckets):
        (tmp_path / "table.json").write_text(json.dumps({"sources": sources, "buckets": buckets}))
        return [j.words for j in renew.missing("tune", [SOFTMAX], H200)]

    again = [("tune", "softmax", "--quick")]
    assert [j.words for j in renew.missing("tune", [SOFTMAX], H200)] == again
    timed = [c for c in SOFTMAX.operator.cases if c.use == "bench"]
    calls = (renew.inspection.specs_of(SOFTMAX, c) for c in timed)
    buckets = {SOFTMAX.bucket(**call): {} for call in calls}
    today = tune.sources(SOFTMAX)
    assert wanted(today, buckets) == []
    assert wanted({**today, "cuda_warp": "another"}, buckets) == again
    assert wanted(today, dict(list(buckets.items())[1:])) == again


def test_what_was_watched_is_not_watched_again(shipped):
    warp = SOFTMAX.rung("cuda_warp")
    seen = {"rung": "cuda_warp", "hash": source_hash(SOFTMAX, warp), "case": "check:races"}
    write(shipped, proof({}, "a", **seen))
    jobs = {j.name: j.words for j in renew.missing("watch", [SOFTMAX], H200)}
    assert "watch-softmax.cuda_warp-races" not in jobs
    words = ("verify", "softmax.cuda_warp", "--check", "bounds", "--record")
    assert jobs["watch-softmax.cuda_warp-bounds"] == words
    assert "watch-softmax.cuda_block-races" in jobs


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7f")


def test_gpus_share_the_jobs(two_gpus):
    gpus = renew._Gpus(2)
    assert gpus.count == 4
    with gpus.one() as a, gpus.one() as b, gpus.one() as c:
        assert [x["CUDA_VISIBLE_DEVICES"] for x in (a, b, c)] == ["3", "GPU-7f", "3"]
        assert a["PATH"]
    with gpus.one() as d:
        assert d["CUDA_VISIBLE_DEVICES"] == "GPU-7f"
    assert gpus.free.qsize() == 4


def test_jobs_say_how_they_ended_and_failed_ones_are_left(tmp_path, capsys, two_gpus):
    good, bad = Job("good", ("--help",)), Job("bad", ("ledgers",))
    assert renew._run_all([good, bad], tmp_path, Budget(time.monotonic() + 60, 1)) == [bad]
    said = capsys.readouterr().out
    assert "good: exit 0" in said and "bad: exit 2" in said and "ledgers" in said
    assert "kernelwright" in (tmp_path / "good.log").read_text()


def test_no_job_starts_without_time(tmp_path, capsys, two_gpus):
    job = Job("late", ("--help",))
    assert renew._run_all([job], tmp_path, Budget(time.monotonic() + 1, 1)) == [job]
    assert not (tmp_path / "late.log").exists()


@pytest.mark.long
def test_a_job_is_stopped_when_time_is_over(tmp_path, capsys, two_gpus):
    job = Job("slow", ("verify", "softmax", "sum"))
    assert renew._run_all([job], tmp_path, Budget(time.monotonic() + 6, 1)) == [job]
    assert "slow: no time" in capsys.readouterr().out


def test_the_list_says_what_would_be_done(capsys, shipped):
    assert renew.main(["x", "gelu", "--list", "--steps", "prove,watch"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "watch: kernelwright verify gelu.cuda_vec16 --check races --record" in said


@pytest.mark.parametrize("words", [("x", "--steps", "prove,guess"), ("x",)])
def test_wrong_usage(words, capsys, monkeypatch):
    monkeypatch.setattr(renew, "gpu_of", lambda device: None)
    with pytest.raises(SystemExit) as e:
        renew.main([*words])
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert "--steps guess: there are prove, tune, time, watch" in said or "no GPU here" in said
