"""The output of `kernelwright dissect`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.emulator.dissect import Place
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import LOW, Dissection, Line
from kernelwright.workbench.records import metrics

from .tables import Column, Note, Table


def dissection(dissected: Dissection, source: Path) -> RenderableType:
    """The cost of each access by line, the divergent branches, and the memory traffic."""
    text = source.read_text(encoding="utf-8").splitlines()
    config = " ".join(f"{k}={v}" for k, v in dissected.config.items())
    head = Note(
        f"{dissected.operator}.{dissected.rung}  {dissected.case}  {config}".rstrip(), "bold"
    )
    parts: list[RenderableType] = [head]
    for k, launch in enumerate(dissected.launches):
        grid, block = (" x ".join(map(str, _trimmed(v))) for v in (launch.grid, launch.block))
        parts.append(Note(f"launch {k}: {launch.kernel}, {grid} blocks of {block}"))
    parts += [_accesses(dissected, text), *_branches(dissected, text), Text(), *_traffic(dissected)]
    return Group(*parts)


def _trimmed(size: tuple[int, int, int]) -> tuple[int, ...]:
    return size if size[2] > 1 else size[:2] if size[1] > 1 else size[:1]


def _accesses(dissected: Dissection, text: list[str]) -> Table:
    table = Table(
        Column("line", line="above"),
        Column("source", line="above"),
        Column("access"),
        Column("requests", 8, right=True),
        Column("lanes", 7, right=True),
        Column("sectors", 9, right=True),
        Column("efficiency", 9, right=True),
        Column("passes", 6, right=True),
        Column("conflicts", 9, right=True),
    )
    for x in dissect.lines(dissected):
        table.add(*_place(x.place, text), access(x), *_cells(x))
    return table


def _place(place: Place, text: list[str]) -> tuple[Text, Text]:
    """The number and the text of a line."""
    inside = f"  [{place.inside[0]}]" if place.inside else ""
    code = text[place.line - 1].strip() if place.line else ""
    return Text(str(place.line), "dim"), Text(code + inside)


def access(x: Line) -> str:
    """A description such as "load x, 4 B"."""
    return f"{x.kind} {'/'.join(x.memory)}, {x.width} B"


def _cells(x: Line) -> list[Text]:
    out = [Text(f"{x.requests:,}"), Text(f"{x.active:.1f}", "red" if x.idle else "")]
    if x.efficiency is None:
        conflicts = Text(f"{x.conflicts:,}", "red" if x.conflicts else "dim")
        return [*out, Text(), Text(), Text(f"{x.passes / x.requests:.2f}"), conflicts]
    wasted = Text(metrics.percent(x.efficiency), "red" if x.efficiency < LOW else "")
    return [*out, Text(f"{x.sectors / x.requests:.2f}"), wasted, Text(), Text()]


def _branches(dissected: Dissection, text: list[str]) -> list[RenderableType]:
    parted = dissect.branches(dissected)
    if not parted:
        return [Note("no divergent branches")]
    table = Table(
        Column("line", line="above"),
        Column("divergent branch", line="above"),
        Column("executed by warps", 8, right=True),
        Column("lanes", 7, right=True),
        Column("divergent", right=True),
        Column("share", 9, right=True),
    )
    for b in parted:
        share = b.parted / b.executions
        table.add(
            *_place(b.place, text),
            f"{b.executions:,}",
            f"{b.lanes / b.executions:.1f}",
            f"{b.parted:,}",
            Text(metrics.percent(share), "red" if share > LOW else ""),
        )
    return [Text(), table]


def _traffic(dissected: Dissection) -> list[Note]:
    moved = dissected.sectors * dissect.SECTOR
    needed = dissected.distinct * dissect.SECTOR
    size = metrics.size
    lines = [
        f"global memory: {size(dissected.asked)} requested, {size(moved)} in the sectors of all "
        f"requests, {size(needed)} in distinct sectors",
        f"the operator must move {size(dissected.cost)}: distinct sectors are "
        f"{metrics.times(needed / dissected.cost)} of that",
    ]
    if dissected.passes:
        lines.append(
            f"shared memory: {dissected.passes:,} passes through the banks, "
            f"{dissected.conflicts:,} of them due to bank conflicts"
        )
    if dissected.copied:
        lines.append(f"tensor memory accelerator: {size(dissected.copied)} copied")
    if dissected.products:
        lines.append(f"tensor cores: {dissected.products:,} wgmma")
    lines.append(f"active lanes: mean {dissected.active:.1f} of 32 over executed basic blocks")
    return [Note(line, "") for line in lines]
