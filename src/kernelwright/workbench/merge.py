"""Takes over records that were made elsewhere, and drops what is of sources that are no more.

A GPU is seldom where the sources are written: it works on a copy, and its records come home when
some of them are of yesterday's kernels.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelwright.dispatch import ladders

from . import ledger, records
from .records import Record


@dataclass(frozen=True)
class Merged:
    """`taken` records came in, `stale` ones of the folders did not, `dropped` ones are gone from
    the records that were here: they are of other sources than today's."""

    taken: int
    stale: int
    dropped: int


def merge(folders: Iterable[Path], root: Path | None = None) -> Merged:
    """Bring records into those that are here, runs in the order of their times, and prove again.

    Args:
        folders: each is searched for the files that `--record` writes ($KW_RECORDS).
        root: of the records that are here; by default `records.home()`.

    Raises:
        ValueError: a folder has no records.
    """
    root = root or records.home()
    by_run: dict[str, list[Record]] = defaultdict(list)
    environments: dict[str, dict] = {}
    taken = stale = 0
    for folder in folders:
        found = sorted(folder.rglob("runs.jsonl"))
        whole = [p for name in records.WHOLE for p in sorted(folder.rglob(f"*/{name}"))]
        if not found and not whole:
            raise ValueError(f"{folder}: has no records (no runs.jsonl in it)")
        for path in whole:
            shutil.copy(path, _made(root / path.parent.name) / path.name)
            taken += 1
        for runs in found:
            environments.update((e["run"], e) for e in map(json.loads, _lines(runs)))
            for path in sorted(runs.parent.glob("*.jsonl")):
                for line in _lines(path) if path != runs else ():
                    if _is_stale(line):
                        stale += 1
                    else:
                        r = records.read(line)
                        by_run[r.run].append(r)
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
    """Take lines of other sources out of the files; how many."""
    dropped = 0
    for path in sorted(root.glob("*/*.jsonl")):
        if path.name == "runs.jsonl":
            continue
        lines = list(_lines(path))
        kept = [line for line in lines if not _is_stale(line)]
        dropped += len(lines) - len(kept)
        if not kept:
            path.unlink()
        elif len(kept) < len(lines):
            path.write_text("\n".join(kept) + "\n")
    return dropped


def _is_stale(text: str) -> bool:
    """Of an operator, rung, config, case or source that is not there today."""
    line = json.loads(text)
    if line["operator"] in records.OF_NO_OPERATOR:
        return False
    lad = next((x for x in ladders() if x.name == line["operator"]), None)
    return lad is None or any(True for _ in ledger.of_line(lad, line))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line]
