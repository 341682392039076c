"""The output of `kernelwright compare`."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.workbench.compare.compare import Compared, Facts, Row
from kernelwright.workbench.records.metrics import microseconds, times

STYLES = {
    "faster": "bold green",
    "same": "green",
    "slower": "bold red",
    "ambiguous": "yellow",
    "wrong": "bold red",
    "error": "bold red",
    "untimed": "dim",
}


def row(r: Row) -> Text:
    """One line for a case, printed when it is done."""
    head = Text.assemble(
        (f"{r.verdict:<10}", STYLES[r.verdict]), (f"{r.operator} ", "bold"), r.case
    )
    if r.ratio is None:
        return head.append(f"  {r.why}", "dim" if r.verdict == "untimed" else "")
    assert r.low is not None and r.high is not None and r.noise is not None
    head.append(f"  A {microseconds(r.a_us)} ({r.a}), B {microseconds(r.b_us)} ({r.b}); ")
    head.append(f"B is {r.ratio:.3f}x as fast", "bold")
    return head.append(f" [{r.low:.3f} .. {r.high:.3f}], A/A noise {100 * r.noise:.1f}%", "dim")


def summary(found: Compared) -> RenderableType:
    """The verdict over all cases, and static facts of the kernels that only a GPU can time."""
    parts: list[RenderableType] = [facts(f, found.a, found.b) for f in found.facts]
    counts = {v: sum(r.verdict == v for r in found.rows) for v in STYLES}
    said = ", ".join(f"{n} {v}" for v, n in counts.items() if n) or "no operator differs"
    mean = f"; geometric mean {times(found.ratio)} as fast" if found.ratio else ""
    where = f"B ({found.b}) against A ({found.a}): "
    parts.append(Text.assemble(where, (found.verdict, STYLES[found.verdict]), f" ({said}{mean})"))
    return Group(*parts)


def facts(f: Facts, a: str, b: str) -> Table:
    """Registers, spills and instructions of both sides' kernels, one launch after another."""
    table = Table(title=f"{f.operator} {f.case}: compiled for an H200", box=box.SIMPLE_HEAD)
    table.title_justify, table.title_style, table.header_style = "left", "bold", "dim"
    for name in ("", f"A: {a}", f"B: {b}"):
        table.add_column(name, overflow="fold")
    for i in range(max(len(f.a), len(f.b))):
        both = [side[i] if i < len(side) else None for side in (f.a, f.b)]
        columns = [_facts(one) if one else {} for one in both]
        for key in dict.fromkeys([*columns[0], *columns[1]]):
            left, right = (c.get(key, "") for c in columns)
            differs = all(both) and left != right
            table.add_row(key, left, Text(right, "bold yellow" if differs else ""))
        table.add_section()
    return table


def _facts(one: dict[str, Any]) -> dict[str, str]:
    if "error" in one:
        return {"kernel": one["error"]}
    r, i = one["resources"], one["instructions"]
    spilled = r["spill_stores"] + r["spill_loads"]
    return {
        "kernel": one["kernel"],
        "grid and block": f"{tuple(one['grid'])}, {one['threads']} threads",
        "registers": str(r["registers"]),
        "spills": f"{spilled} bytes" if spilled else "none",
        "shared memory": f"{r['static_shared'] + one['dynamic_shared']} bytes",
        "occupancy": f"{100 * one['occupancy']['fraction']:.0f}%",
        "instructions": str(i["total"]),
        "global loads": _widths(i["global_loads"]),
        "global stores": _widths(i["global_stores"]),
    }


def _widths(found: dict[str, int]) -> str:
    return ", ".join(f"{n} of {w} bits" for w, n in sorted(found.items(), key=lambda x: int(x[0])))
