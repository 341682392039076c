"""The output of `kernelwright verify`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kernelwright.contract import Ladder, Rung
from kernelwright.support.words import counted

from .results import config_text
from .tables import Column, Note, Stream

OUTCOMES = {
    "pass": "green",
    "compiled": "cyan",
    "unsupported": "dim",
    "wrong": "bold red",
    "error": "bold red",
}


def verifying(rungs: Iterable[tuple[Ladder, Rung]]) -> Stream:
    """A table with the rows that `verified` makes."""
    rungs = list(rungs)
    names = [len(f"{lad.name}.{rung.name}") for lad, rung in rungs]
    configs = [len(config_text(config)) for _, rung in rungs for config in rung.configs]
    return Stream(
        Column("outcome", width=max(map(len, OUTCOMES))),
        Column("rung", width=max(names, default=0)),
        Column("cases", 8, right=True, width=5),
        Column("not run", 3, right=True, width=7),
        Column("worst error", 7, right=True, width=17),
        Column("config", 2, width=max(configs, default=0)),
        Column("why", line="below"),
    )


def verified(stream: Stream, row: Any) -> RenderableType:
    """A row of verify, printed as soon as it is complete."""
    worst = ""
    if row.outcome == "pass" and row.worst_case and row.worst and row.worst.error:
        worst = f"{row.worst.error.worst:.2g} of {row.worst.budget.worst:.2g} ulp"
    style = OUTCOMES[row.outcome]
    return stream.row(
        Text(row.outcome, style),
        Text(f"{row.operator}.{row.rung}", "bold"),
        str(row.passed),
        str(sum(row.skipped.values()) or ""),
        worst,
        Text(config_text(row.config), "dim"),
        Text("" if row.outcome == "pass" else row.why, style),
    )


def verify_summary(result: Any) -> Note:
    """The totals over all rows."""
    counts = {o: sum(r.outcome == o for r in result.rows) for o in OUTCOMES}
    said = ", ".join(f"{n} {o}" for o, n in counts.items() if n)
    return Note(
        f"{counted(len(result.rows), 'config')}: {said}; "
        f"{counted(result.ran, 'result')} compared with the reference",
        "",
    )
