"""Runs of the tests and of tools.gpu_check on GPUs: when, at which commit, with which result.

`records/suite.jsonl` has one line for each run of `pytest --record-suite` or `tools.gpu_check
--record`, the newest last. A run may be a part of the suite; the parts of one commit are counted
together. `records/known_failures.json` gives the reason of each failure that is accepted, by its
name.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelwright.dispatch import data

FILE, KNOWN = "suite.jsonl", "known_failures.json"
CHECK = "check"  # the scope of tools.gpu_check
ROOT = Path(__file__).resolve().parents[4]  # of the checkout
#: Sources on which the result of a run on a GPU depends.
SOURCES = tuple(f"src/kernelwright/{p}" for p in ("ops", "include", "dispatch", "toolchain"))


@dataclass(frozen=True)
class SuiteRun:
    """A run of the tests, or of a part of them.

    Attributes:
        commit: "1a2b3c4...", followed by "+" if there were uncommitted changes.
        when: the time of its end, UTC.
        machine: a slug, as in records.
        scope: "all", "cover" for the tests that `make test` runs, or CHECK.
        part: "2/7", or "1/1".
        seconds: wall-clock time.
        failures: names of the tests that failed.
    """

    commit: str
    when: str
    machine: str
    python: str
    torch: str
    triton: str | None
    driver: str | None
    scope: str
    part: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteStanding:
    """The parts of the suite that ran last on a machine, of one commit. `missing`: the parts that
    did not run."""

    commit: str
    when: str
    machine: str
    torch: str
    scope: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: tuple[str, ...]
    missing: tuple[str, ...]


def known_failures(root: Path) -> dict[str, str]:
    """The accepted failures in a folder of records: the reason of each, by name."""
    return data.document(root / KNOWN, {})


def changed_since(commit: str) -> int | None:
    """How many files of SOURCES differ between a commit and the checkout; None if there is no
    checkout, or if its git does not know the commit."""
    git = ["git", "-C", str(ROOT), "diff", "--name-only", commit.rstrip("+"), "--", *SOURCES]
    try:
        done = subprocess.run(git, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return None if done.returncode else len(done.stdout.splitlines())


def append(run: SuiteRun, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def load(path: Path) -> list[SuiteRun]:
    """The runs in a file; empty if there is no file."""
    found: list[SuiteRun] = []
    for _, run in data.lines(path):
        run["failures"] = tuple(run["failures"])
        found.append(SuiteRun(**run))
    return found


def merge(path: Path, into: Path) -> int:
    """Append the runs of a file that `into` does not contain yet; returns how many."""
    known = set(load(into))
    new = [run for run in load(path) if run not in known]
    for run in new:
        append(run, into)
    return len(new)


def standing(runs: Iterable[SuiteRun]) -> list[SuiteStanding]:
    """The last run on each machine: the newest, and those of the same commit, scope, torch and
    number of parts. If a part ran twice, the later run is used."""
    newest: dict[str, SuiteRun] = {}
    together: dict[tuple[str, ...], dict[str, SuiteRun]] = {}
    for run in sorted(runs, key=lambda run: run.when):
        newest[run.machine] = run
        together.setdefault(_kind(run), {})[run.part] = run
    return [_standing(list(together[_kind(run)].values())) for run in newest.values()]


def _kind(run: SuiteRun) -> tuple[str, ...]:
    return (run.machine, run.commit, run.scope, run.torch, run.part.split("/")[1])


def _standing(parts: list[SuiteRun]) -> SuiteStanding:
    last, of = parts[-1], int(parts[0].part.split("/")[1])
    ran = {run.part for run in parts}
    return SuiteStanding(
        last.commit,
        last.when,
        last.machine,
        last.torch,
        last.scope,
        sum(run.passed for run in parts),
        sum(run.failed for run in parts),
        sum(run.skipped for run in parts),
        sum(run.seconds for run in parts),
        tuple(name for run in parts for name in run.failures),
        tuple(f"{i}/{of}" for i in range(1, of + 1) if f"{i}/{of}" not in ran),
    )
