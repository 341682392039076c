"""Figures of the shipped records of the reference machine, an H200."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.workbench.records import records
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record

from .tables import RECORD, Table


def times(name: str, title: str, operator: str, rungs: Sequence[str], case: str) -> Table:
    """Cold times and rates of rungs on a case.

    Raises:
        KeyError: a rung has no such record.
    """
    rows: list[tuple[str, float, float]] = []
    for rung in rungs:
        r = record(operator, rung, case)
        rows.append((f"{operator}.{rung}", records.median(r.cold), r.gbps or 0.0))
    return Table(name, title, ("rung", "µs", "GB/s"), tuple(rows), RECORD)


def record(operator: str, rung: str, case: str) -> Record:
    """The timed record of a rung's fastest config on the reference machine.

    Raises:
        KeyError: there is no such record.
    """
    timed = [
        r
        for r in records.load(REFERENCE_MACHINE, operator)
        if (r.rung, r.case) == (rung, case) and r.cold
    ]
    if not timed:
        raise KeyError(f"no record of {operator}.{rung} on {case}")
    return min(timed, key=lambda r: records.median(r.cold))
