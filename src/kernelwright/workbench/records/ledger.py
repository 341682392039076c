"""Which rungs are proven on which GPU, and whether the records are consistent.

A rung is proven on a GPU if every config, with the rung's current source, was verified there
without an error. `dispatch.proof` reads this from `data/proven.json`, which `write_proven`
derives from the records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import H200, Ladder, Rung
from kernelwright.dispatch import data, ladders, native_calls, proof, proven_on, source_hash
from kernelwright.dispatch.selection import shipped_tables
from kernelwright.support.errors import GOOD, WRONG
from kernelwright.workbench.inspection import specs_of

from . import records, suite

ALL_CASES = "*"  # the case of a verification's record
Line = dict[str, Any]


#: The records from which the shipped proofs are made.
SHIPPED = records.ROOT


@dataclass(frozen=True)
class LedgerRow:
    """The state of one rung.

    Attributes:
        hash: the hash of its current source.
        proven: GPUs on which that source passed; always empty for PyTorch's own rungs, which need
            no proof.
        stale: GPUs on which another version of its source was verified.
        wanted: bench cases for which it is dispatched on an H200 if it is proven.
        carried: GPUs of `proven` on which an earlier source with the same machine code passed
            (carry.py).
    """

    operator: str
    rung: str
    backend: str
    hash: str
    proven: tuple[str, ...]
    stale: tuple[str, ...]
    wanted: tuple[str, ...]
    carried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """Every GPU rung, every inconsistency in the shipped data, when the tests last ran on each GPU,
    and what calls of operators run in.

    Attributes:
        known: the reasons of accepted failures, by name.
        changed: by commit of a run, how many files of kernels, dispatch and toolchain have changed
            since; None where that is not known.
    """

    rows: tuple[LedgerRow, ...]
    problems: tuple[str, ...]
    suite: tuple[suite.SuiteStanding, ...] = ()
    calls: str = ""
    known: dict[str, str] = field(default_factory=dict)
    changed: dict[str, int | None] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 if there is no problem, else 1."""
        return WRONG if self.problems else GOOD


def ledger(root: Path | None = None) -> Ledger:
    """Which rungs are proven, and problems of the shipped records.

    Args:
        root: the folder of the records; by default the shipped ones, with the user's own proofs.

    Raises:
        data.Damaged: a file of the records is damaged.
    """
    roots = [root] if root else [*records.roots()]
    for folder in roots:
        _read_whole(folder)
    shipped = root or records.ROOT
    ran = suite.standing(suite.load(shipped / suite.FILE))
    return Ledger(
        tuple(_rows(*roots)),
        tuple(check(root)),
        tuple(ran),
        native_calls.calls(),
        suite.known_failures(shipped),
        {run.commit: suite.changed_since(run.commit) for run in ran},
    )


def check(root: Path | None = None) -> list[str]:
    """Every problem of the records and proofs, one line each.

    The newest run of the tests on a GPU has a failure that is not in known_failures.json; a rung
    in a default order or a tuned table is unproven; `proven.json` does not match the records; a
    record belongs to another source than the current one, names something that does not exist, has
    an outcome that contradicts its error, or has times although it did not pass.
    """
    root = root or records.ROOT
    return [
        *_of_runs(root),
        *_of_lines(root),
        *_of_defaults(root),
        *_of_tables(),
        *_of_proven(root),
    ]


def proven(*roots: Path) -> dict[str, dict[str, list[str]]]:
    """What the records prove for current sources: {"softmax.triton_row": {hash: [machines]}}."""
    found: dict[str, dict[str, list[str]]] = {}
    verified = _verified(*roots)
    for lad, rung in _gpu_rungs():
        digest = source_hash(lad, rung)
        machines = sorted(
            machine
            for (name, its, machine), lines in verified.items()
            if name == (lad.name, rung.name) and its == digest and _proves(rung, lines)
        )
        if machines:
            found[f"{lad.name}.{rung.name}"] = {digest: machines}
    return found


def _proven_file(root: Path) -> Path:
    """The file of the proofs of a folder's records; that of the shipped records is in `data`."""
    return proof.PROVEN if root == SHIPPED else root / proof.PROVEN.name


def write_proven(root: Path | None = None) -> Path:
    """Write `proven.json` from the records; returns its path."""
    root = root or records.home()
    path = _proven_file(root)
    data.write(path, json.dumps(proven(root), indent=1, sort_keys=True) + "\n")
    return path


def _proves(rung: Rung, lines: list[Line]) -> bool:
    """Whether nothing was wrong, something passed, and no config was missing."""
    outcomes = {_config(line): line["outcome"] for line in lines}
    shipped = {json.dumps(c, sort_keys=True) for c in rung.configs}
    return (
        shipped <= set(outcomes)
        and "pass" in outcomes.values()
        and not {"wrong", "error"} & set(outcomes.values())
    )


def _config(line: Line) -> str:
    return json.dumps(line.get("config", {}), sort_keys=True)


def _gpu_rungs() -> Iterator[tuple[Ladder, Rung]]:
    return ((lad, rung) for lad in ladders() for rung in lad.rungs if rung.is_gpu)


def _read_whole(root: Path) -> None:
    """Read every file, including those not needed for proofs."""
    for path in sorted(root.glob("*/*.jsonl")):
        read = data.lines if path.name == "runs.jsonl" else records.lines
        for _ in read(path):
            pass
    for path in sorted(root.glob("**/*.json")):
        data.document(path, None)


def _lines(root: Path) -> Iterator[tuple[str, Line]]:
    """(its location, the record as written in its file)."""
    for path in sorted(root.glob("*/*.jsonl")):
        if path.name != "runs.jsonl":
            for number, line in records.lines(path):
                yield f"{path.parent.name}/{path.name}:{number}", line


def _verified(*roots: Path) -> dict[tuple, list[Line]]:
    """Records of verifications on GPUs by (operator, rung), hash and machine."""
    found: dict[tuple, list[Line]] = defaultdict(list)
    for _, line in chain.from_iterable(map(_lines, roots)):
        if line["case"] == ALL_CASES and not line["machine"].startswith("cpu-"):
            rung = (line["operator"], line["rung"])
            found[rung, line.get("hash", ""), line["machine"]].append(line)
    return found


def _rows(*roots: Path) -> Iterator[LedgerRow]:
    verified, shown = _verified(*roots), proven(*roots)
    for lad, rung in _gpu_rungs():
        digest = source_hash(lad, rung)
        machines = shown.get(f"{lad.name}.{rung.name}", {}).get(digest, [])
        stale = {m for r, its, m in verified if r == (lad.name, rung.name) and its != digest}
        wanted = tuple(case for case, name in _wanted(lad) if name == rung.name)
        lines = {m: verified[(lad.name, rung.name), digest, m] for m in machines}
        carried = (m for m in machines if any("carried" in line for line in lines[m]))
        proved = tuple(machines), tuple(sorted(stale)), wanted, tuple(carried)
        yield LedgerRow(lad.name, rung.name, rung.backend, digest, *proved)


@cache
def _wanted(lad: Ladder) -> tuple[tuple[str, str], ...]:
    """(bench case, the rung that the ladder's order selects for it on an H200), proven or not."""
    found = []
    for case in lad.operator.cases:
        if case.use == "bench":
            call = specs_of(lad, case)
            rungs = (lad.rung(name) for name in lad.order(H200, **call))
            fit = (
                r for r in rungs if r.dispatchable and not (r.supports and r.supports(H200, **call))
            )
            found += [(case.id, rung.name) for rung in islice(fit, 1)]
    return tuple(found)


def _of_runs(root: Path) -> Iterator[str]:
    """Failures of the newest run on each GPU that have no reason."""
    known = suite.known_failures(root)
    for ran in suite.standing(suite.load(root / suite.FILE)):
        for name in ran.failures:
            if name not in known:
                yield f"{ran.machine}: {name} failed, for no reason in {suite.KNOWN}"


def _of_lines(root: Path) -> Iterator[str]:
    known = {lad.name: lad for lad in ladders()}
    runs = {r["run"] for path in root.glob("*/runs.jsonl") for _, r in data.lines(path)}
    for where, line in _lines(root):
        if line["run"] not in runs:
            yield f"{where}: belongs to the run {line['run']}, which is not in runs.jsonl"
        outcome, error, budget = line["outcome"], line.get("error"), line.get("budget")
        if outcome not in records.OUTCOMES:
            yield f"{where}: {outcome!r} is not an outcome"
        if outcome != "pass" and any(line.get(t) for t in ("cold", "warm", "host")):
            yield f"{where}: has times, but its outcome is {outcome}"
        ours = not line["rung"].startswith("peer:")  # a peer's error is shown but not limited
        if ours and bool(error) != bool(budget):
            yield f"{where}: has an error without a budget, or the other way round"
        elif error and budget and outcome == "pass" and not _within(error, budget):
            yield f"{where}: passed, but its error {error} is over its budget {budget}"
        if where.rsplit(":", 1)[0] != f"{line['machine']}/{line['operator']}.jsonl":
            yield f"{where}: is of {line['operator']} on {line['machine']}"
        lad = known.get(line["operator"])
        if lad is not None:
            yield from (f"{where}: {why}" for why in of_line(lad, line))
        elif line["operator"] not in records.OF_NO_OPERATOR:
            yield f"{where}: there is no operator {line['operator']}"


def _within(error: Line, budget: Line) -> bool:
    return all(error[k] <= budget[k] for k in error)  # false for NaN


@cache
def _case_ids(lad: Ladder) -> frozenset[str]:
    return frozenset((ALL_CASES, *(c.id for c in lad.operator.cases)))


def of_line(lad: Ladder, line: Line) -> Iterator[str]:
    """The names in an operator's record that do not exist (any more), one problem each."""
    watched = line["case"].startswith("check:")  # all of a rung's configs under one tool
    if not watched and line["case"] not in _case_ids(lad):
        yield f"{lad.name} has no case {line['case']}"
    if ":" in line["rung"] or line["rung"] == "control":  # a peer, a roof
        return
    if line["rung"] not in lad.names:
        yield f"{lad.name} has no rung {line['rung']}"
        return
    rung = lad.rung(line["rung"])
    if line.get("hash") != source_hash(lad, rung):
        yield f"is for another source of {lad.name}.{rung.name} than the current one"
    if not watched and line.get("config", {}) not in rung.configs:
        yield f"{lad.name}.{rung.name} has no config {line.get('config', {})}"


def _of_defaults(root: Path) -> Iterator[str]:
    shown = proven(root)
    for lad in ladders():
        served: dict[str, list[str]] = defaultdict(list)
        for case, name in _wanted(lad):
            served[name].append(case)
        for name, cases in served.items():
            if lad.rung(name).is_gpu and f"{lad.name}.{name}" not in shown:
                more = f" and {len(cases) - 1} more cases" if cases[1:] else ""
                yield f"{lad.name}.{name} is unproven, but would be dispatched for {cases[0]}{more}"


def _of_tables() -> Iterator[str]:
    for lad in ladders():
        for path in sorted(shipped_tables(lad).glob(f"{lad.name}.sm_*.json")):
            for bucket, entry in data.document(path, {})["buckets"].items():
                where = f"{path.name}: {bucket}"
                if entry["rung"] not in lad.names:
                    yield f"{where}: {lad.name} has no rung {entry['rung']}"
                    continue
                for name, config in entry["configs"].items():
                    if name not in lad.names or config not in lad.rung(name).configs:
                        yield f"{where}: {lad.name}.{name} has no config {config}"
                rung = lad.rung(entry["rung"])
                if rung.is_gpu and not proven_on(lad, rung):
                    yield f"{where}: {rung.name} is unproven"


def _of_proven(root: Path) -> Iterator[str]:
    path = _proven_file(root)
    if data.document(path, {}) != proven(root):
        yield f"{path.name} does not match the records: write it again"
