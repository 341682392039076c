"""Counters of the rungs: from the emulator and, if recorded, from a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.contract import Ladder
from kernelwright.dispatch import data, source_hash
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import SECTOR, Dissection
from kernelwright.workbench.records import metrics, records

EMULATED = (
    "rung", "case", "requests", "active lanes", "sectors / request", "bytes used of sectors",
    "bank conflicts", "traffic / least",
)  # fmt: skip
#: The GPU counters that are shown, by their names in the records.
COUNTED = {
    "instructions": "instructions",
    "threads_per_instruction": "threads / instruction",
    "global_load_sectors": "sectors loaded",
    "global_store_sectors": "sectors stored",
    "shared_load_conflicts": "load conflicts",
    "shared_store_conflicts": "store conflicts",
    "dram_read_bytes": "DRAM read",
}


@dataclass(frozen=True)
class View:
    """A table of counters."""

    caption: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def views(lad: Ladder) -> list[View]:
    """The tables for a ladder's current sources; empty if nothing was recorded."""
    current = {r.name: source_hash(lad, r) for r in lad.rungs}
    every = [
        View("Counted by the emulator, with its model of a warp", EMULATED, rows)
        for rows in [_emulated(lad, current)]
    ]
    machine = records.REFERENCE_MACHINE
    head = ("rung", "case", *COUNTED.values())
    every.append(View(f"Counted by {machine} (Nsight Compute)", head, _counted(lad, current)))
    return [v for v in every if v.rows]


def _emulated(lad: Ladder, current: dict[str, str]) -> list[tuple[str, ...]]:
    mine = [d for d in dissect.load() if d.operator == lad.name and current.get(d.rung) == d.hash]
    order = list(current)
    return [_row(d) for d in sorted(mine, key=lambda d: (order.index(d.rung), d.case))]


def _row(d: Dissection) -> tuple[str, ...]:
    accesses = [a for launch in d.launches for a in launch.accesses]
    requests = sum(a.requests for a in accesses if a.sectors)
    return (
        d.rung,
        d.case,
        f"{requests:,}",
        f"{d.active:.1f}",
        f"{d.sectors / requests:.2f}" if requests else "",
        metrics.percent(d.asked / (d.sectors * SECTOR)) if d.sectors else "",
        f"{d.conflicts:,}",
        metrics.times(d.sectors * SECTOR / d.cost) if d.cost else "",
    )


def _counted(lad: Ladder, current: dict[str, str]) -> list[tuple[str, ...]]:
    path = records.ROOT / records.REFERENCE_MACHINE / "counters.json"
    calls: dict[tuple[str, str], dict[str, float]] = {}
    for launch in data.document(path, []):
        if launch["operator"] == lad.name and current.get(launch["rung"]) == launch["hash"]:
            call = calls.setdefault((launch["rung"], launch["case"]), {})
            _add(call, launch["counts"])
    order = list(current)
    calls = dict(sorted(calls.items(), key=lambda c: (order.index(c[0][0]), c[0][1])))
    return [
        (rung, case, *(_text(name, counts.get(name)) for name in COUNTED))
        for (rung, case), counts in calls.items()
    ]


def _add(call: dict[str, float], counts: dict[str, Any]) -> None:
    """Add a launch's counts to its call's; a mean is weighted by instructions."""
    mean = "threads_per_instruction"
    weights = call.get("instructions", 0.0), counts.get("instructions", 0.0)
    means = call.get(mean, 0.0), counts.get(mean, 0.0)
    for name, value in counts.items():
        call[name] = call.get(name, 0.0) + value
    if sum(weights):
        call[mean] = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes"):
        return metrics.size(round(value))
    return f"{value:.1f}" if name == "threads_per_instruction" else f"{value:,.0f}"
