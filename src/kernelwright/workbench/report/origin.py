"""Which records were measured here and which were shipped with the package."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable

from kernelwright.dispatch import data
from kernelwright.support.settings import CHECKOUT, RECORDS
from kernelwright.workbench.records.metrics import Row
from kernelwright.workbench.records.records import Record

HERE, SHIPPED = "measured here", "shipped"


def runs_here(found: Iterable[Record]) -> frozenset[str]:
    """The runs among the records that are not in the package: those added by `--record` or `ledger
    --merge`. A checkout without git cannot tell them from its own."""
    shipped = _committed() if CHECKOUT else None
    if shipped is None:
        files = RECORDS.glob("*/runs.jsonl")
        shipped = {line["run"] for path in files for _, line in data.lines(path)}
    return frozenset(r.run for r in found) - shipped


def _committed() -> set[str] | None:
    """The runs in the last commit of the checkout; None if git knows none."""
    listed = _git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    names = [f"HEAD:./{name}" for name in listed if name.endswith("/runs.jsonl")]
    if not names:
        return None
    return {json.loads(line)["run"] for line in _git("show", *names).splitlines()}


def _git(*words: str) -> str:
    """git's output in the folder of the records; "" if it fails."""
    git = ["git", "-C", str(RECORDS), *words]
    try:
        return subprocess.run(git, capture_output=True, encoding="utf-8").stdout
    except FileNotFoundError:
        return ""


def of(row: Row, here: frozenset[str]) -> str:
    """The origin of a row's time; "" if it has none."""
    if row.record is None or not row.timed:
        return ""
    return HERE if row.record.run in here else SHIPPED


def caption(rows: Iterable[Row], here: frozenset[str], machine: str) -> str:
    """The origin of a figure's times, as the end of its caption."""
    kinds = {of(row, here) for row in rows} - {""}
    if kinds == {HERE}:
        return f"measured here, on {machine}"
    if kinds == {SHIPPED}:
        return f"shipped records of {machine}"
    if kinds:
        return f"on {machine}; outlined: measured here, others: shipped records"
    return "no times"
