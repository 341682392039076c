"""The output of `kernelwright compare`."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.workbench.compare.compare import Compared, Facts, Row
from kernelwright.workbench.records.metrics import microseconds, times

from .tables import Column, Stream, Table

STYLES = {
    "faster": "bold green",
    "same": "green",
    "slower": "bold red",
    "ambiguous": "yellow",
    "wrong": "bold red",
    "error": "bold red",
    "untimed": "dim",
}


def rows() -> Stream:
    """A table with one row per case, made by `row`."""
    return Stream(
        Column("operator", line="above"),
        Column("case", line="above"),
        Column("sides", line="above"),
        Column("verdict", width=9),
        Column("B as fast", right=True, width=9),
        Column("95% interval", 7, right=True, width=14),
        Column("A", 9, right=True, width=7),
        Column("B", 9, right=True, width=7),
        Column("A/A noise", 8, right=True, width=9),
        Column("why", line="below"),
    )


def row(stream: Stream, r: Row) -> RenderableType:
    """A case's row, printed when it is done."""
    timed = r.ratio is not None
    return stream.row(
        Text(r.operator, "bold"),
        r.case,
        Text(f"A: {r.a}, B: {r.b}" if timed else "", "dim"),
        Text(r.verdict, STYLES[r.verdict]),
        Text(f"{r.ratio:.3f}x" if timed else "", "bold"),
        Text(f"{r.low:.3f} .. {r.high:.3f}" if timed else "", "dim"),
        microseconds(r.a_us if timed else None),
        microseconds(r.b_us if timed else None),
        Text(f"{100 * r.noise:.1f}%" if timed and r.noise is not None else "", "dim"),
        Text("" if timed else r.why, "dim" if r.verdict == "untimed" else ""),
    )


def summary(compared: Compared) -> RenderableType:
    """The verdict over all cases, and static facts of the kernels that only a GPU can time."""
    parts: list[RenderableType] = [facts(f, compared.a, compared.b) for f in compared.facts]
    counts = {v: sum(r.verdict == v for r in compared.rows) for v in STYLES}
    said = ", ".join(f"{n} {v}" for v, n in counts.items() if n) or "no operator differs"
    mean = f"; geometric mean {times(compared.ratio)} as fast" if compared.ratio else ""
    where = f"B ({compared.b}) against A ({compared.a}): "
    parts.append(
        Text.assemble(where, (compared.verdict, STYLES[compared.verdict]), f" ({said}{mean})")
    )
    return Group(*parts)


def facts(f: Facts, a: str, b: str) -> Table:
    """Registers, spills and instructions of both sides' kernels, one launch after another."""
    table = Table(
        Column("launch", line="above"),
        Column(""),
        Column(f"A: {a}", wraps=True),
        Column(f"B: {b}", wraps=True),
        title=f"{f.operator} {f.case}: compiled for an H200",
    )
    for i in range(max(len(f.a), len(f.b))):
        both = [side[i] if i < len(side) else None for side in (f.a, f.b)]
        columns = [_facts(one) if one else {} for one in both]
        for key in dict.fromkeys([*columns[0], *columns[1]]):
            left, right = (c.get(key, "") for c in columns)
            differs = all(both) and left != right
            launch = Text(f"launch {i}", "dim")
            table.add(launch, key, left, Text(right, "bold yellow" if differs else ""))
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


def _widths(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} of {w} bits" for w, n in sorted(counts.items(), key=lambda x: int(x[0])))
