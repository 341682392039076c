"""What the command line prints: results as rich tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from . import figures
from .listing import Listing

COLUMNS = (
    "rung", "cold", "95% interval", "warm", "host", "rate", "of roof", "over below",
    "over best peer", "bound",
)  # fmt: skip
OUTCOMES = {
    "pass": "green",
    "compiled": "cyan",
    "unsupported": "dim",
    "wrong": "bold red",
    "error": "bold red",
}
BACKENDS = {
    "torch": "white",
    "inductor": "yellow",
    "triton": "blue",
    "cuda": "green",
    "numba": "magenta",
    "peer": "red",
}


def listing(found: Listing) -> RenderableType:
    """A table an operator: its rungs from bottom to top."""
    parts: list[RenderableType] = []
    for op in found.operators:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for column in ("rung", "backend", "here", "proven", "serves"):
            table.add_column(column, no_wrap=column == "rung")
        for rung in op.rungs:
            many = f"serves {len(rung.serves)} of {len(op.cases)}" if rung.serves else ""
            gpu = rung.backend in ("triton", "cuda", "numba")
            proven = "proven" if rung.proven else "unproven" if gpu else ""
            table.add_row(
                Text("  " + rung.name),
                Text(rung.backend, style=BACKENDS[rung.backend]),
                Text(rung.here, style="dim" if rung.here != "runs" else ""),
                Text(proven, style="dim" if proven == "unproven" else "green"),
                Text(many),
            )
        parts += [Text.assemble((op.name, "bold"), (f"  {op.schema}", "dim")), table, Text()]
    where = f"this {found.gpu}" if found.here else f"an {found.gpu}; CPU tensors go to native"
    parts.append(Text(f"serves: of the operator's bench cases, by default, on {where}", "dim"))
    return Group(*parts)


def verified(row: Any) -> str:
    """One line for a row of verify, as it arrives."""
    name = f"{row.operator}.{row.rung}"
    config = " ".join(f"{k}={v}" for k, v in row.config.items())
    detail = row.why
    if row.outcome == "pass":
        left_out = sum(row.skipped.values())
        detail = f"{row.passed} cases" + (f", {left_out} not run here" if left_out else "")
        if row.worst_case and row.worst and row.worst.error:
            detail += f"; worst {row.worst.error.worst:.2g} of {row.worst.budget.worst:.2g} ulp"
    style = OUTCOMES[row.outcome]
    return (
        f"[{style}]{row.outcome:<11}[/] [bold]{escape(name):<34}[/] "
        f"{escape(detail)}[dim]  {escape(config)}[/]"
    )


def verify_summary(result: Any) -> str:
    counts = {o: sum(r.outcome == o for r in result.rows) for o in OUTCOMES}
    said = ", ".join(f"{n} {o}" for o, n in counts.items() if n)
    return f"{len(result.rows)} rungs and configs: {said}; {result.ran} rung x case pairs ran"


def ladder(table: figures.Table, beside: figures.Table | None = None) -> RenderableType:
    """The ladder table of one case.

    Args:
        beside: the same case on another machine, where rungs of it could only be verified here.
    """
    roof = table.roof
    title = f"{table.ladder.name}  {table.case}"
    if table.label:
        title += f"  ({table.label})"
    out = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for name in COLUMNS:
        out.add_column(name, justify="left" if name in ("rung", "bound") else "right", no_wrap=True)
    if beside:
        out.add_column(f"recorded on {beside.machine}", justify="right", style="cyan")
    there = {r.name: r for r in beside.rows} if beside else {}
    for row in table.rows:
        cells: list[Any] = [
            Text(row.name.removeprefix("peer:"), style=BACKENDS[row.backend]),
        ]
        if row.timed and row.interval:
            low, high = (figures.microseconds(t) for t in row.interval)
            cells += [
                Text(figures.microseconds(row.cold), "bold"),
                Text(f"{low} .. {high}", "dim"),
                figures.microseconds(row.warm),
                figures.microseconds(row.host),
                figures.rate(row.gbps),
                Text(figures.percent(row.of_roof), "bold"),
                figures.times(row.over_below),
                figures.times(row.over_best),
                row.record.bound if row.record else "",
            ]
        else:
            cells += [Text(row.status, "dim italic"), *[""] * 8]
        if beside:
            other = there.get(row.name)
            cells.append(_beside(other) if other else Text("no record", "dim"))
        out.add_row(*cells)
    if roof:
        out.caption = f"roof: {figures.rate(roof.gbps)}, a stream of the same bytes, same run"
        out.caption_justify = "left"
    return out


def _beside(row: figures.Row) -> Text:
    if not row.timed:
        return Text(row.status, "dim")
    share = figures.percent(row.of_roof)
    return Text(f"{figures.microseconds(row.cold)}" + (f", {share} of roof" if share else ""))


def facts(title: str, found: dict[str, Any]) -> RenderableType:
    """Nested facts as an indented two-column table."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, title=title)
    table.title_justify, table.title_style = "left", "bold"
    _facts(table, found, 0)
    return table


def _facts(table: Table, found: dict[str, Any], depth: int) -> None:
    for name, value in found.items():
        label = Text("  " * depth + str(name).replace("_", " "))
        if isinstance(value, dict):
            table.add_row(label, "")
            _facts(table, value, depth + 1)
        elif isinstance(value, (list, tuple)):
            table.add_row(label, ", ".join(map(str, value)))
        else:
            table.add_row(label, Text("none" if value is None else str(value)))


def console(*, stderr: bool = False) -> Console:
    """A console that keeps its lines whole where nobody is watching."""
    found = Console(stderr=stderr, highlight=False)
    if not found.is_terminal:
        found.width = 160
    return found
