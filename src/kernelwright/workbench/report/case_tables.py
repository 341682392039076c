"""The timed cases shown for the reference machine, and the one that represents a ladder."""

from __future__ import annotations

from kernelwright.contract import H200, Ladder
from kernelwright.workbench.inspection import specs_of
from kernelwright.workbench.listing import served
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.metrics import Table
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record


def current(lad: Ladder, measured: list[Record]) -> list[Table]:
    """The timed cases whose dispatched rung has a time with the dispatched config. Otherwise the
    times of the other rungs would be compared with those of an older source."""

    def known(case: str) -> bool:
        at = metrics.case_named(lad, case)
        if at is None:
            return False
        rung, config = served(lad, H200, specs_of(lad, at))
        (row,) = (r for r in tables[case].rows if r.name == rung.name)
        return row.timed and row.record is not None and row.record.config == config

    timed = metrics.timed_cases(lad, REFERENCE_MACHINE, measured)
    tables = {case: metrics.table(lad, REFERENCE_MACHINE, case, measured) for case in timed}
    return [tables[case] for case in timed if known(case)]


def headline(lad: Ladder, measured: list[Record]) -> Table | None:
    """The case that represents the ladder, among those that are shown."""
    return max(current(lad, measured), key=metrics.telling, default=None)
