"""Merges records made on another machine, and drops records of sources that no longer exist.

A GPU machine often works on a copy of the sources. When its records are merged, some kernels may
have changed meanwhile.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.dispatch import data, ladders
from kernelwright.workbench.records import ledger, records, suite
from kernelwright.workbench.records.records import Record


@dataclass(frozen=True)
class Merged:
    """`taken`: the number of merged records. `stale`: records of the folders that were skipped, and
    `dropped`: existing records that were removed, because they are not of the current sources."""

    taken: int
    stale: int
    dropped: int


def merge(folders: Iterable[Path], root: Path | None = None) -> Merged:
    """Merge records into the existing ones, runs in chronological order, and update the proofs.

    Args:
        folders: each is searched for the files that `--record` writes ($KW_RECORDS).
        root: folder of the existing records; by default `records.home()`.

    Raises:
        ValueError: a folder has no records. data.Damaged: a file is damaged.
    """
    root = root or records.home()
    by_run: dict[str, list[Record]] = defaultdict(list)
    environments: dict[str, dict] = {}
    taken = stale = 0
    for folder in folders:
        found = sorted(folder.rglob("runs.jsonl"))
        whole = [p for name in records.WHOLE for p in sorted(folder.rglob(f"*/{name}"))]
        suites = sorted(folder.rglob(suite.FILE))
        taken += sum(suite.merge(path, root / suite.FILE) for path in suites)
        if not (found or whole or suites):
            raise ValueError(f"{folder}: has no records (no runs.jsonl in it)")
        for path in whole:
            shutil.copy(path, _made(root / path.parent.name) / path.name)
            taken += 1
        for runs in found:
            environments.update((e["run"], e) for _, e in data.lines(runs))
            for path in sorted(runs.parent.glob("*.jsonl")):
                for number, line in records.lines(path) if path != runs else ():
                    if _is_stale(line):
                        stale += 1
                    else:
                        if line["run"] not in environments:
                            why = f"belongs to the run {line['run']}, which is not in runs.jsonl"
                            raise data.Damaged(path, number, why)
                        by_run[line["run"]].append(records.read(line))
                        taken += 1
    for run in sorted(by_run):
        records.save(by_run[run], environments[run], root)
    dropped = _drop_stale(root)
    ledger.write_proven(root)
    return Merged(taken, stale, dropped)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _drop_stale(root: Path) -> int:
    """Remove lines of other sources from the files; returns how many."""
    dropped = 0
    for path in sorted(root.glob("*/*.jsonl")):
        if path.name == "runs.jsonl":
            continue
        lines = [line for _, line in records.lines(path)]
        kept = [line for line in lines if not _is_stale(line)]
        dropped += len(lines) - len(kept)
        if not kept:
            path.unlink()
        elif len(kept) < len(lines):
            records.write(path, kept)
    return dropped


def _is_stale(line: dict[str, Any]) -> bool:
    """Whether a record's operator, rung, config, case or source no longer exists."""
    if line["operator"] in records.OF_NO_OPERATOR:
        return False
    lad = next((x for x in ladders() if x.name == line["operator"]), None)
    return lad is None or any(True for _ in ledger.of_line(lad, line))
