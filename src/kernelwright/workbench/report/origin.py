"""Which records were measured here and which were shipped with the package."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.dispatch import data
from kernelwright.support.settings import DATA
from kernelwright.workbench.records.metrics import Row
from kernelwright.workbench.records.records import Record

HERE, SHIPPED = "measured here", "shipped"


def runs_here(measured: Iterable[Record]) -> frozenset[str]:
    """The runs among the records that are not in the package: those added by `--record` or `ledger
    --merge`."""
    files = (DATA / "records").glob("*/runs.jsonl")
    shipped = {line["run"] for path in files for _, line in data.lines(path)}
    return frozenset(r.run for r in measured) - shipped


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
