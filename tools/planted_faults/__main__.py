"""Draws a sample of the mutants of some folders' programs, tries them and writes the record."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .places import Mutant, mutants
from .trials import trial

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
#: Why mutants have no finding; those that are no `fault` are not counted.
REASONS = HERE / "reasons.json"
#: Of one program and class, at most; more of classes that few programs have.
MOST = {"fence": 6, "asynchronous copy": 6, "alignment": 4}
MOST_ELSE = 3


@dataclass(frozen=True)
class Program:
    file: Path
    name: str  # a path in this repository, or repository@commit:path
    arguments: tuple[str, ...] = ()
    edits: tuple[tuple[str, str], ...] = ()  # smaller sizes

    @property
    def text(self) -> str:
        text = self.file.read_text(errors="replace")
        for old, new in self.edits:
            if old not in text:
                raise SystemExit(f"{self.name} does not contain {old}")
            text = text.replace(old, new)
        return text


def programs(corpus: Path) -> list[Program]:
    """The programs of a folder."""
    corpus = corpus.resolve()
    listed = corpus / "programs.json"
    if listed.exists():
        return [
            Program(corpus / x["repository"].replace("/", "+") / x["path"],
                    f"{x['repository']}@{x['commit'][:12]}:{x['path']}", tuple(x["arguments"]),
                    tuple(map(tuple, x.get("edits", ()))))
            for x in json.loads(listed.read_text())
        ]  # fmt: skip
    where = corpus.relative_to(ROOT)
    return [Program(p, str(where / p.name)) for p in sorted(corpus.glob("*.cu"))]


def sample(chosen: list[Program], seed: int, each: int) -> list[tuple[Program, Mutant]]:
    """Up to `each` mutants of each class, of as many programs as there are."""
    rng = random.Random(seed)
    by_class: dict[str, list[tuple[Program, Mutant]]] = defaultdict(list)
    for p in chosen:
        of_class: dict[str, list[Mutant]] = defaultdict(list)
        for m in mutants(p.text):
            of_class[m.rule.fault].append(m)
        for fault, those in of_class.items():
            most = min(MOST.get(fault, MOST_ELSE), len(those))
            by_class[fault] += [(p, m) for m in rng.sample(those, most)]
    drawn: list[tuple[Program, Mutant]] = []
    for fault in sorted(by_class):
        drawn += rng.sample(by_class[fault], min(each, len(by_class[fault])))
    return drawn


def tried(drawn: list[tuple[Program, Mutant]]) -> Iterator[dict[str, Any]]:
    """What became of each mutant of a program that is right as it stands."""
    right: dict[str, bool] = {}
    for p, m in drawn:
        if p.name not in right:
            right[p.name] = trial(p.file, p.text, p.arguments).right
        if not right[p.name]:
            continue
        row = {"class": m.rule.fault, "rule": m.rule.name, "program": p.name, "line": m.line,
               "column": m.column}  # fmt: skip
        got = trial(p.file, m.text, p.arguments)
        row["found"] = got.found
        if not got.found:
            row["ended"] = got.says
            if m.probe and not trial(p.file, m.probe, p.arguments).reached:
                row["without_effect"] = "no launch reaches the place"
        yield row


def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["program"], row["rule"], row["line"], row["column"]


def counted(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Planted, found and excluded, by class."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for fault in (row["class"], "all"):
            if "without_effect" in row:
                table[fault]["excluded"] += 1
            else:
                table[fault]["planted"] += 1
                table[fault]["found"] += row["found"] is not None
    names = ("planted", "found", "excluded")
    return {fault: {n: table[fault][n] for n in names} for fault in sorted(table)}


def rules_hash() -> str:
    """Of what decides which faults are planted."""
    texts = [(HERE / name).read_bytes() for name in ("rules.py", "places.py")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]


def written(record: Path, rows: list[dict[str, Any]], seed: int, each: int) -> None:
    by_hand = {place_of(x): x for x in json.loads(REASONS.read_text())}
    for row in rows:
        why = by_hand.get(place_of(row))
        if row["found"] is None and why:
            row["missed" if why["fault"] else "without_effect"] = why["reason"]
    head = {"seed": seed, "each": each, "rules": rules_hash(), "classes": counted(rows)}
    lines = ",\n".join(json.dumps(row) for row in rows)
    record.write_text(f'{json.dumps(head)[:-1]},\n"mutants": [\n{lines}\n]}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.planted_faults", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--each", type=int, default=40, help="mutants of each class and corpus")
    parser.add_argument("--write", type=Path, help="the record")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for corpus in options.corpus:
        for row in tried(sample(programs(corpus), options.seed, options.each)):
            print(json.dumps(row), flush=True)
            rows.append(row)
            if options.write:
                written(options.write, rows, options.seed, options.each)
    print(json.dumps(counted(rows), indent=1))


if __name__ == "__main__":
    main()
