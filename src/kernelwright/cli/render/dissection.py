"""The output of `kernelwright dissect`."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import LOW, Dissection, Line
from kernelwright.workbench.records import metrics


def dissection(found: Dissection, source: Path) -> RenderableType:
    """The cost of each access by line, the divergent branches, and the memory traffic."""
    text = source.read_text(encoding="utf-8").splitlines()
    config = " ".join(f"{k}={v}" for k, v in found.config.items())
    head = Text.assemble((f"{found.operator}.{found.rung}", "bold"), f"  {found.case}  ", config)
    parts: list[RenderableType] = [head]
    for k, launch in enumerate(found.launches):
        grid, block = (" x ".join(map(str, _trimmed(v))) for v in (launch.grid, launch.block))
        parts.append(Text(f"  launch {k}: {launch.kernel}, {grid} blocks of {block}", "dim"))
    parts += [_accesses(found, text), *_branches(found, text), Text(), *_traffic(found)]
    return Group(*parts)


def _trimmed(size: tuple[int, int, int]) -> tuple[int, ...]:
    return size if size[2] > 1 else size[:2] if size[1] > 1 else size[:1]


def _accesses(found: Dissection, text: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("line", justify="right")
    table.add_column("source", overflow="ellipsis", no_wrap=True, max_width=52, min_width=12)
    table.add_column("access", no_wrap=True)
    for name in ("requests", "lanes", "sectors", "efficiency", "passes", "conflicts"):
        table.add_column(name, justify="right", no_wrap=True)
    last = 0
    for x in dissect.lines(found):
        at = x.place.line
        code = text[at - 1].strip() if at and at != last else ""
        if x.place.inside:
            code = f"{code}  [{x.place.inside[0]}]" if code else f"  [{x.place.inside[0]}]"
        table.add_row(str(at) if at != last else "", Text(code), access(x), *_cells(x))
        last = at
    return table


def access(x: Line) -> str:
    """ "load x, 4 B"."""
    return f"{x.kind} {'/'.join(x.memory)}, {x.width} B"


def _cells(x: Line) -> list[Text]:
    idle = x.active < LOW * 32
    out = [Text(f"{x.requests:,}"), Text(f"{x.active:.1f}", "red" if idle else "")]
    if x.efficiency is None:
        conflicts = Text(f"{x.conflicts:,}", "red" if x.conflicts else "dim")
        return [*out, Text(), Text(), Text(f"{x.passes / x.requests:.2f}"), conflicts]
    wasted = Text(metrics.percent(x.efficiency), "red" if x.efficiency < LOW else "")
    return [*out, Text(f"{x.sectors / x.requests:.2f}"), wasted, Text(), Text()]


def _branches(found: Dissection, text: list[str]) -> list[RenderableType]:
    parted = dissect.branches(found)
    if not parted:
        return [Text("  no divergent branches", "dim")]
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("line", justify="right")
    table.add_column("divergent branch", overflow="ellipsis", no_wrap=True, max_width=52)
    for name in ("executed by warps", "lanes", "divergent", ""):
        table.add_column(name, justify="right")
    for b in parted:
        code = text[b.place.line - 1].strip() if b.place.line else ""
        code += f"  [{b.place.inside[0]}]" if b.place.inside else ""
        share = b.parted / b.executions
        table.add_row(
            str(b.place.line),
            Text(code),
            f"{b.executions:,}",
            f"{b.lanes / b.executions:.1f}",
            f"{b.parted:,}",
            Text(metrics.percent(share), "red" if share > LOW else ""),
        )
    return [table]


def _traffic(found: Dissection) -> list[Text]:
    moved = found.sectors * dissect.SECTOR
    needed = found.distinct * dissect.SECTOR
    size = metrics.size
    lines = [
        f"global memory: {size(found.asked)} requested, {size(moved)} in the sectors of all "
        f"requests, {size(needed)} in distinct sectors",
        f"the operator must move {size(found.cost)}: distinct sectors are "
        f"{metrics.times(needed / found.cost)} of that",
    ]
    if found.passes:
        lines.append(
            f"shared memory: {found.passes:,} passes through the banks, {found.conflicts:,} of "
            "them due to bank conflicts"
        )
    lines.append(f"active lanes: mean {found.active:.1f} of 32 over executed basic blocks")
    return [Text("  " + line) for line in lines]
