"""The data of the report's first screen: one row per machine, operator and case.

templates/report.js computes means and counts from it, over the rows selected by its filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernelwright.contract import PYTORCHS, Ladder
from kernelwright.machine import stats
from kernelwright.workbench.records import metrics, records
from kernelwright.workbench.records.metrics import Row, Table
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record

from . import case_tables


def machines(measured: Iterable[Record], runs_here: frozenset[str]) -> list[str]:
    """Machines with times: those measured here first, then the reference machine, other GPUs, CPUs.

    Args:
        runs_here: the runs measured here.
    """
    timed = [r for r in measured if r.cold]
    mine = {r.machine for r in timed if r.run in runs_here}
    order = lambda m: (m not in mine, m != REFERENCE_MACHINE, m.startswith("cpu"), m)  # noqa: E731
    return sorted({r.machine for r in timed}, key=order)


def opening(machines: list[str]) -> tuple[str, str]:
    """The machine that the page shows first, and the one beside it ("" for none).

    Without a GPU only PyTorch's rungs are timed. Such a machine is therefore shown beside the
    reference machine.

    Args:
        machines: see `machines`.
    """
    first = next(iter(machines), "")
    if first.startswith("cpu-") and REFERENCE_MACHINE in machines:
        return REFERENCE_MACHINE, first
    return first, ""


def tables(lad: Ladder, machine: str, measured: list[Record]) -> list[Table]:
    """A ladder's timed cases; on the reference machine, those shown in README and the pages."""
    if machine == REFERENCE_MACHINE:
        return case_tables.current(lad, measured)
    cases = metrics.timed_cases(lad, machine, measured)
    return [metrics.table(lad, machine, case, measured) for case in cases]


def rows(
    lad: Ladder, machine: str, measured: list[Record], runs_here: frozenset[str]
) -> list[dict[str, Any]]:
    """The first screen's data for each timed case of a ladder.

    Each row has the rung that represents the ladder (the fastest written here, or PyTorch's if none
    of these is timed, marked `theirs`), its time, its share of the roof, and its factors over
    PyTorch and the best peer. PyTorch's kernels have no share: what bounds them is not known.
    """
    out: list[dict[str, Any]] = []
    for t in tables(lad, machine, measured):
        best = t.ours or t.fastest
        if best is None or best.record is None or best.cold is None:
            continue
        case = metrics.case_named(lad, t.case)
        out.append(
            {
                "case": t.case,
                "dtype": str(case.dtype).removeprefix("torch.") if case else "",
                "bytes": t.bytes,
                "rung": best.name,
                "us": _round(best.cold),
                "roof": _round(best.of_roof) if best is t.ours else None,
                "torch": _round(over_torch(lad, best, t)),
                "peer": _round(over_peer(lad, best)) if best is t.ours else None,
                "noise": _round(noise(lad, t, measured)),
                "here": best.record.run in runs_here,
                "theirs": best is not t.ours,
            }
        )
    return out


def over_torch(lad: Ladder, row: Row, table: Table) -> float | None:
    """The speedup over PyTorch's own operator; None if PyTorch only emulates the operator."""
    if lad.emulated:
        return None
    native = next((r.record for r in table.rows if r.name == "native"), None)
    return records.ratio(row.record, native) if row.record and native else None


def over_peer(lad: Ladder, row: Row) -> float | None:
    """The speedup over the fastest of PyTorch and the peers; None if there is no peer that does the
    same work."""
    pytorch = row.best is not None and row.best.rung in PYTORCHS
    return None if lad.emulated and pytorch else row.over_best


def noise(lad: Ladder, table: Table, measured: Iterable[Record]) -> float | None:
    """The A/A noise of a case: PyTorch's operator against a second timing of it in its run."""
    mine = [
        r for r in measured
        if (r.operator, r.machine, r.case) == (lad.name, table.machine, table.case) and r.cold
    ]  # fmt: skip
    again = {r.run: r for r in mine if r.rung == "control"}
    pairs = [(r, again[r.run]) for r in mine if r.rung == "native" and r.run in again]
    return stats.noise(pairs[-1][0].cold, pairs[-1][1].cold) if pairs else None


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
