"""The regret report of `bench --sample`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.workbench.bench.regret import QUANTILES, RegretResult, Sampled, Summary

from .tables import ALWAYS, Column, Table

SHOWN = 20  # cases of the report, the worst first


def report(result: RegretResult) -> RenderableType:
    """One line per operator, the distributions, then the worst cases."""
    parts: list[RenderableType] = [_summary(result), Text()]
    if any(r.us for r in result.rows):
        parts += [_distributions(result), Text()]
    return Group(*parts, _worst(result.worst_first[:SHOWN]))


def _summary(result: RegretResult) -> Table:
    table = Table(
        Column("operator"),
        Column("cases", 4, right=True),
        Column("over best peer", ALWAYS, right=True),
        Column("behind", 3, right=True),
        Column("worst", 5, right=True),
        Column("regret", 6, right=True),
        Column("of roof", 2, right=True),
    )
    for name in result.operators:
        s = result.summary(name)
        table.add(
            name,
            _cases(s),
            _show(s.speedup, "{:.2f}x"),
            _show(s.behind, "{:.0%}"),
            _show(s.slowest and 1 / s.slowest, "{:.2f}x"),
            _show(s.regret, "{:.3f}"),
            _show(s.of_roof, "{:.0%}"),
        )
    return table


def _distributions(result: RegretResult) -> Table:
    """Our time over the best peer's and over the best known config's; all operators last."""
    table = Table(
        Column("operator"),
        Column("our time over", ALWAYS),
        *(Column(f"{q}%", ALWAYS, right=True) for q in QUANTILES),
    )
    several = [*result.operators, None] if len(result.operators) > 1 else result.operators
    for name in several:
        s = result.summary(name)
        for over, quantiles in (("best peer", s.over_peer), ("best config", s.over_best)):
            if quantiles:
                table.add(name or "all", over, *(f"{quantiles[q]:.3f}" for q in QUANTILES))
    return table


def _cases(s: Summary) -> str:
    done = f"{s.timed} of {s.cases} timed" if s.timed else f"{s.verified} of {s.cases} verified"
    return f"{done}, {s.wrong} wrong" if s.wrong else done


def _worst(rows: list[Sampled]) -> Table:
    table = Table(
        Column("case", line="above"),
        Column("dispatched", wraps=True),
        Column("us", 5, right=True),
        Column("best peer", 4, right=True),
        Column("over it", ALWAYS, right=True),
        Column("best of ours", 2),
        Column("regret", 6, right=True),
    )
    for r in rows:
        wrong = r.trouble.get("dispatched") or r.trouble.get("not run here", "")
        table.add(
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
