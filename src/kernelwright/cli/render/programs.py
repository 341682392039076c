"""The text printed after a program's own output: findings, notes, costs by line."""

from __future__ import annotations

import signal
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from kernelwright.emulator.dissect import Access, Dissected
from kernelwright.emulator.program import Result

from .tables import Column, Note, Table

TIMED = (
    "kernelwright: the times above are those of the emulator on this CPU and do not indicate the "
    "speed of a GPU. `--dissect` counts sectors, bank conflicts and inactive lanes"
)
REPEATED = (
    "kernelwright: {}: launches with the arguments and the memory of an earlier one were not "
    "executed again; its results were copied, and events count its time"
)


def after(result: Result, checked: bool) -> list[RenderableType]:
    """Findings and notes; empty if there are none."""
    lines: list[str] = []
    for f in result.findings:
        again = f" ({f.count} times)" if f.count > 1 else ""
        lines.append(f"kernelwright: {f.check}: {f.text}{again}")
    own = ("timed", "repeated")
    lines += [f"kernelwright: {n.text}" for n in result.notes if n.kind not in own]
    if result.code < 0:
        lines.append(f"kernelwright: the program was killed by {signal.Signals(-result.code).name}")
    if checked and not lines:
        lines.append("kernelwright: the checks found nothing")
    if again := ", ".join(dict.fromkeys(n.text for n in result.notes if n.kind == "repeated")):
        lines.append(REPEATED.format(again))
    parts: list[RenderableType] = [Text(line) for line in lines]
    for launch in result.dissected:
        parts += costs(launch)
    if any(n.kind == "timed" for n in result.notes):
        parts.append(Text(TIMED))
    return parts


def costs(launch: Dissected) -> list[RenderableType]:
    """A table of a launch's accesses, and a table of its divergent branches."""
    grid, block = (" x ".join(map(str, v)) for v in (launch.grid, launch.block))
    share = launch.lanes / (launch.steps * 32) if launch.steps else 1
    table = Table(
        Column("line", line="above"),
        Column("access"),
        Column("requests", 8, right=True),
        Column("lanes", 7, right=True),
        Column("sectors", 9, right=True),
        Column("passes", 6, right=True),
        Column("conflicts", 9, right=True),
    )
    for a in sorted(launch.accesses, key=lambda a: (a.place.line, a.kind)):
        table.add(*_access(a))
    head = f"{launch.kernel}: first launch, {grid} blocks of {block}"
    lanes = f"{launch.steps:,} basic blocks of warps, {share:.0%} of their lanes active"
    parts: list[RenderableType] = [Text(), Note(head, "bold"), Note(lanes), table]
    parted = [b for b in launch.branches if b.parted]
    if parted:
        branches = Table(
            Column("line", line="above"),
            Column("divergent branch"),
            Column("executed by warps", 8, right=True),
            Column("divergent", right=True),
        )
        for b in parted:
            branches.add(b.place.text, "branch", f"{b.executions:,}", f"{b.parted:,}")
        parts += [Text(), branches]
    return parts


def _access(a: Access) -> tuple[str, ...]:
    shared = a.memory == "shared"
    sectors = "" if shared else f"{a.sectors / a.requests:.2f}"
    passes = f"{a.passes / a.requests:.2f}" if shared else ""
    conflicts = f"{a.passes - a.least_passes:,}" if shared else ""
    what = f"{a.kind} {Path(a.memory).name}, {a.width} B"
    lanes = f"{a.lanes / a.requests:.1f}"
    return a.place.text, what, f"{a.requests:,}", lanes, sectors, passes, conflicts
