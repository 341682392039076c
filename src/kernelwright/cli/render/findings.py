"""The output of `verify --check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from kernelwright.contract import Ladder, Rung
from kernelwright.support.words import counted
from kernelwright.workbench.sanitize.compute_sanitizer import TOOLS, Watched
from kernelwright.workbench.sanitize.report import UNDER, Checked

from .tables import Column, Note, Stream

MOST = 5  # findings shown per rung and check; the JSON output has all


def watching(rungs: Iterable[tuple[Ladder, Rung]], checks: Iterable[str]) -> Stream:
    """A table with the rows that `watched` makes."""
    names = [len(f"{lad.name}.{rung.name}") for lad, rung in rungs]
    return Stream(
        Column("outcome", width=9),
        Column("rung", width=max(names, default=0)),
        Column("findings", 9, right=True, width=8),
        Column("calls", 8, right=True, width=5),
        Column("schedules", 6, right=True, width=9),
        Column("checks", 5, width=len(", ".join(checks))),
        Column("under", 3, width=max(map(len, (UNDER, *TOOLS.values())))),
        Column("why", line="below"),
    )


def watched(stream: Stream, rows: Sequence[Watched]) -> RenderableType:
    """A rung and its checks, printed when it is done, with a line for each finding."""
    first = rows[0]
    count = sum(len(r.findings) for r in rows)
    outcome, style, lines = "unchecked", "dim", []
    if count:
        outcome, style = "found", "bold red"
        for r in rows:
            lines += [f"{r.check}: {f}" for f in r.findings[:MOST]]
            if len(r.findings) > MOST:
                lines.append(f"{r.check}: and {len(r.findings) - MOST} more")
    elif first.calls:
        outcome, style = "clean", "green"
    else:
        lines = [next(iter(first.left_out), "no call can run on this machine")]
    return stream.row(
        Text(outcome, style),
        Text(f"{first.operator}.{first.rung}", "bold"),
        str(count or ""),
        str(first.calls or ""),
        str(first.schedules or ""),
        ", ".join(r.check for r in rows),
        first.under,
        "\n".join(lines),
    )


def summary(result: Checked) -> Note:
    """The totals over all rungs."""
    rungs: dict[tuple[str, str], list[Watched]] = {}
    for row in result.rows:
        rungs.setdefault((row.operator, row.rung), []).append(row)
    counts = Counter(
        "with findings" if any(r.findings for r in rows)
        else "clean" if any(r.calls for r in rows) else "unchecked"
        for rows in rungs.values()
    )  # fmt: skip
    calls = sum(rows[0].calls for rows in rungs.values())
    said = ", ".join(f"{counts[k]} {k}" for k in ("with findings", "clean", "unchecked"))
    return Note(f"{counted(len(rungs), 'rung')}: {said}; {counted(calls, 'call')} checked", "")
