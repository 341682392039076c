"""The ladder chart: a bar for each rung, whose length is the share of the roof.

Three groups: baselines, the teaching sequence, alternatives (steps.py).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from html import escape

from kernelwright.support.svg import drawing, element, line, rect, text
from kernelwright.workbench.records.metrics import (
    Row,
    Table,
    microseconds,
    percent,
    rate,
    size,
    times,
)

from .steps import Steps, steps
from .svg import NARROW, marker, wrapped

STEP, BAR = 50, 14  # heights of a ladder's row and its bar, pixels
HEAD = 30  # height of a group's title
#: Titles of the groups, and the contents of each.
GROUPS = (
    ("Baselines", "PyTorch and other libraries"),
    ("Teaching sequence", "each step is faster than the one before it, or equal within 1%"),
    ("Alternatives", "for other shapes or in another language, and rungs not timed on this case"),
)


def ladder(
    table: Table,
    *,
    dispatched: str = "",
    here: Set[str] = frozenset(),
    title: str = "",
    caption: str = "",
) -> str:
    """A ladder chart.

    Args:
        table: metrics of one case.
        dispatched: the rung that is dispatched for this case; it is marked.
        here: the runs measured on this machine; other records were shipped.
        title, caption: above the chart in a separate file, which is NARROW pixels wide; without
            a title the chart fills the page.
    """
    scale = _scale(table)
    parts: list[str] = []
    y = 2.0
    if title:
        parts, below = wrapped(16, title, "title", 8.8)
        lines, y = wrapped(below, caption, "axis", 6.4)
        parts += lines
        y -= 8
    ordered = steps(table)
    rows_of = (ordered.baselines, ordered.sequence, ordered.others)
    for (name, about), rows in zip(GROUPS, rows_of, strict=True):
        if not rows:
            continue
        parts.append(
            element(
                "text",
                name + element("tspan", about, kind="idea", dx=10),
                kind="group-name",
                x=0,
                y=y + 16,
            )
        )
        y += HEAD
        for row in rows:
            parts += _bar(row, y, scale, ordered, dispatched, here)
            y += STEP
    if table.roof:
        parts.append(text("100%", y + 10, _roof_note(table), "axis", "end"))
        y += 18
    wide = NARROW if title else None
    return drawing(parts, y, f"{table.ladder.name} ladder, {table.case}", wide)


def _scale(table: Table) -> Callable[[float], float]:
    """Share of the roof to percent of the width. With a warm cache, a rung can exceed the roof."""
    top = max([1.0, *(r.of_roof for r in table.rows if r.of_roof)])
    return lambda share: 100 * share / top


def _bar(
    row: Row,
    y: float,
    scale: Callable[[float], float],
    ordered: Steps,
    dispatched: str,
    here: Set[str],
) -> list[str]:
    mine = bool(row.record and row.record.run in here and row.timed)
    out = [
        f'<g class="row b-{row.backend}{" here" if mine else ""}">',
        marker(row.backend, "7", y + 11),
        _name(row, y, row.name == dispatched),
    ]
    if not row.timed:
        out.append(text("100%", y + 15, row.status.partition(":")[0], "missing", "end"))
        return [*out, rect("track none", 0, y + 23, "100%", BAR, rx=3), "</g>"]
    share = row.of_roof
    figure = f"{microseconds(row.cold)}{', ' * bool(row.rate)}"
    where = "measured here, " if mine else ""
    out.append(
        element(
            "text",
            element("tspan", where, kind="mine")
            + element("tspan", escape(figure), kind="figure")
            + element("tspan", f"{escape(row.rate)} ", kind="figure rate")
            + element("tspan", percent(share), kind="share"),
            kind="value",
            x="100%",
            y=y + 15,
            text_anchor="end",
        )
    )
    out.append(rect("track", 0, y + 23, "100%", BAR, rx=3))
    if share is None:  # the roof was measured in another run
        return [*out, "</g>"]
    end = scale(share)
    out.append(rect("bar", 0, y + 23, f"{end:.1f}%", BAR, rx=3))
    middle = y + 23 + BAR / 2
    if row.interval and row.cold:
        low, high = (scale(share * row.cold / t) for t in reversed(row.interval))
        out.append(line("whisker", f"{low:.1f}%", middle, f"{high:.1f}%", middle))
    if factor := ordered.over_previous(row):
        inside = end > 88
        kind, dx, anchor = ("step in", -8, "end") if inside else ("step", 8, "")
        at = min(end, scale(1.0)) if inside else end  # so that it does not cross the roof's line
        out.append(text(f"{at:.1f}%", middle + 4, times(factor), kind, anchor, dx=dx))
    roof = f"{scale(1.0):.1f}%"
    return [*out, line("roof", roof, y + 19, roof, y + 27 + BAR), "</g>"]


def _name(row: Row, y: float, dispatched: bool) -> str:
    """A rung's name and idea; the dispatched one is marked."""
    word = element("tspan", " dispatched", kind="word")
    mark = element("tspan", f"\u25c0{word}", kind="dispatched", dx=6) if dispatched else ""
    idea = element("tspan", escape(row.rung.idea), kind="idea", dx=12) if row.rung else ""
    name = escape(row.name.removeprefix("peer:"))
    return element("text", name + mark + idea, kind="name", x=19, y=y + 15)


def _roof_note(table: Table) -> str:
    assert table.roof
    mix = table.roof.rung.removeprefix("roof:")
    kind = {"r1w1": "copy", "r1w0": "read", "r0w1": "fill"}.get(mix, f"{mix} stream")
    return f"roof: {rate(table.roof.gbps)} measured {kind} of {size(table.bytes)}"
