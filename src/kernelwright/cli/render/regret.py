"""The regret report of `bench --sample`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.workbench.bench.regret import RegretResult, Sampled, Summary

SHOWN = 20  # cases of the report, the worst first


def report(result: RegretResult) -> RenderableType:
    """A line per operator, then the worst cases."""
    return Group(_summary(result), Text(), _worst(result.worst_first[:SHOWN]))


def _summary(result: RegretResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("operator", "cases", "over best peer", "behind", "worst", "regret", "of roof"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    for name in result.operators:
        s = result.summary(name)
        table.add_row(
            name,
            _cases(s),
            _show(s.speedup, "{:.2f}x"),
            _show(s.behind, "{:.0%}"),
            _show(s.slowest and 1 / s.slowest, "{:.2f}x"),
            _show(s.regret, "{:.3f}"),
            _show(s.of_roof, "{:.0%}"),
        )
    return table


def _cases(s: Summary) -> str:
    done = f"{s.timed} of {s.cases} timed" if s.timed else f"{s.verified} of {s.cases} verified"
    return f"{done}, {s.wrong} wrong" if s.wrong else done


def _worst(rows: list[Sampled]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("case", "dispatched", "us", "best peer", "over it", "best of ours", "regret"):
        table.add_column(column, justify="left" if column in ("case", "dispatched") else "right")
    for r in rows:
        wrong = r.trouble.get("dispatched") or r.trouble.get("not run here", "")
        table.add_row(
            f"{r.operator} {r.case}",
            f"{r.dispatched} {wrong}".strip(),
            _show(r.us.get("dispatched"), "{:.1f}"),
            f"{r.peer} {r.us[r.peer]:.1f}" if r.peer else "",
            _show(r.over_peer and 1 / r.over_peer, "{:.2f}x"),
            r.best.removeprefix("rung:"),
            _show(r.regret, "{:.3f}"),
        )
    return table


def _show(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
