"""Tables for READMEs and docs/dissect.md, made from the records of `dissect`."""

from __future__ import annotations

from collections.abc import Iterable

from tools.dissect_vs_ncu import Pair

from kernelwright.dispatch import ladder
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import Dissection
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.metrics import percent
from kernelwright.workbench.records.records import Record
from tools import counters, dissect_vs_ncu

COUNTED = (
    "global_load_sectors",
    "global_store_sectors",
    "global_atomic_sectors",
    "global_async_sectors",
    "shared_load_wavefronts",
    "shared_load_conflicts",
    "shared_store_wavefronts",
    "shared_store_conflicts",
)


def steps(operator: str, machine: str, timings: Iterable[Record]) -> list[list[str]]:
    """One row per CUDA C++ rung: its costs on the recorded case, and its time on a machine on the
    ladder's headline case."""
    lad = ladder(operator)
    headline = metrics.headline(lad, machine, list(timings))
    times = {r.name: metrics.microseconds(r.cold) for r in headline.rows} if headline else {}
    case = dissect.RECORDED[operator][0]
    recorded = {d.rung: d for d in dissect.load() if (d.operator, d.case) == (operator, case)}
    rows = [
        ["rung", "launches", "active lanes", "divergent branches", "shared requests",
         "shared passes", "bank conflicts", "global requests", "sectors per request", "efficiency",
         "cold"]
    ]  # fmt: skip
    for rung in lad.rungs:
        if rung.name in recorded:
            d = recorded[rung.name]
            rows.append([f"`{rung.name}`", *_costs(d), times.get(rung.name, "")])
    return rows


def _costs(d: Dissection) -> list[str]:
    requests = sum(a.requests for x in d.launches for a in x.accesses if a.sectors)
    return [
        str(len(d.launches)),
        f"{d.active:.1f}",
        f"{d.parted:,}",
        f"{sum(a.requests for x in d.launches for a in x.accesses if a.passes):,}",
        f"{d.passes:,}",
        f"{d.conflicts:,}",
        f"{requests:,}",
        f"{d.sectors / requests:.1f}",
        percent(d.asked / (d.sectors * dissect.SECTOR)),
    ]


def steps_head(operator: str, machine: str, timings: Iterable[Record]) -> str:
    headline = metrics.headline(ladder(operator), machine, list(timings))
    case = dissect.RECORDED[operator][0]
    timed = f"; time of `{headline.case}` on {machine}" if headline else ""
    return f"`{case}`, in the emulator{timed}:"


def counted(operator: str, machine: str) -> tuple[list[list[str]], list[str]]:
    """One row per rung and case, one cell per quantity: dissect's number, and the GPU's if it
    differs. Also returns the explanations that the cells refer to."""
    pairs = dissect_vs_ncu.pairs(dissect.load(), counters.load(machine))
    mine = [p for p in pairs if p.operator == operator and p.word in COUNTED]
    words = [w for w in COUNTED if any(p.word == w for p in mine)]
    reasons: dict[str, str] = {}
    rows = [["rung", "dtype", *(w.replace("_", " ") for w in words)]]
    calls: dict[tuple[str, str], dict[str, Pair]] = {}
    for p in mine:
        calls.setdefault((p.rung, p.case), {})[p.word] = p
    for (rung, case), its in calls.items():
        cells = [_cell(its.get(w), reasons) for w in words]
        rows.append([f"`{rung}`", case.split("-")[1], *cells])
    return rows, [f"{mark}. {reason}" for reason, mark in reasons.items()]


def _cell(p: Pair | None, reasons: dict[str, str]) -> str:
    if p is None:
        return "0"
    if p.found == p.counted:
        return f"{p.found:,.0f}"
    difference = "" if p.counted == 0 else f", {100 * p.difference:+.1f}%"
    text = f"{p.found:,.0f} (GPU {p.counted:,.0f}{difference})"
    if p.alike:
        return text
    reason = dissect_vs_ncu.EXPLANATIONS.get(p.key, "not explained")
    return f"{text} [{reasons.setdefault(reason, str(len(reasons) + 1))}]"
