"""Charts as inline SVG.

Horizontal positions are percentages, so a chart fills a desktop or a phone and its text keeps its
size. Colours are classes that templates/charts.css defines for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from kernelwright.workbench.records.metrics import (
    Row,
    Table,
    microseconds,
    percent,
    rate,
    size,
    times,
)

STEP, BAR = 50, 14  # heights of a ladder's row and its bar, pixels


def ladder(table: Table, *, width: int | None = None, title: str = "", caption: str = "") -> str:
    """A ladder chart: one bar per rung from bottom to top, its length the share of the roof.

    Args:
        table: metrics of one case.
        width: pixels, for a separate file; None fills the page.
        title, caption: two lines above, for a separate file.
    """
    scale = _scale(table)
    parts, y = [], 2
    if title:
        head = _text(0, 16, title, "title", unit=""), _text(0, 36, caption, "axis", unit="")
        parts, y = [*head], 50
    rows = list(table.rows)
    for i, row in enumerate(rows):
        if row.rung is None and rows[i - 1].rung is not None:
            parts.append(_text(0, y + 14, "other libraries, same run", "axis", unit=""))
            y += 22
        parts += _bar(row, y, scale)
        y += STEP
    if table.roof:
        parts.append(_text(100, y + 10, _roof_note(table), "axis", anchor="end"))
        y += 18
    label = f"{table.ladder.name} ladder, {table.case}"
    return _svg(parts, y, label, width)


def overview(tables: Sequence[Table]) -> str:
    """Each ladder's best rung written here as a bar, the best of PyTorch and the peers as a
    diamond, in shares of the roof."""
    parts: list[str] = []
    y = 0
    found = [(t, t.ours, t.theirs) for t in tables]
    shares = [r.of_roof for _, *rows in found for r in rows if r and r.of_roof]
    top = max([1.0, *shares])
    for table, ours, theirs in found:
        if not ours or not ours.of_roof:
            continue
        end, middle = 100 * ours.of_roof / top, y + 23 + BAR / 2
        over = f", {times(ours.over_best)} of {_name(theirs)}" if theirs and ours.over_best else ""
        note = f"{percent(ours.of_roof)}{over}"
        tip = f"{table.ladder.name}: {ours.name} on {table.case}, {note}"
        parts += [
            f'<g class="row b-{ours.backend}"><title>{escape(tip)}</title>',
            _text(0, y + 15, table.ladder.name, "name", unit=""),
            _text(15 + 8 * len(table.ladder.name), y + 15, ours.name, "idea", unit=""),
            f'<text class="value" x="100%" y="{y + 15}" text-anchor="end">'
            f'<tspan class="share">{percent(ours.of_roof)}</tspan>'
            f'<tspan class="figure">{escape(over)}</tspan></text>',
            f'<rect class="track" x="0" y="{y + 23}" width="100%" height="{BAR}" rx="3"/>',
            f'<rect class="bar" x="0" y="{y + 23}" width="{end:.2f}%" height="{BAR}" rx="3"/>',
        ]
        if theirs and theirs.of_roof:
            x = f"{100 * theirs.of_roof / top:.2f}%"
            parts.append(f'<circle class="rival" cx="{x}" cy="{middle:.1f}" r="6"/>')
        x = f"{100 / top:.2f}%"
        parts += [_line("roof", x, y + 19, x, y + 27 + BAR), "</g>"]
        y += STEP
    return _svg(parts, y, "each operator's best rung, share of the roof") if parts else ""


def _name(row: Row | None) -> str:
    return row.name.removeprefix("peer:") if row else ""


def standalone(svg: str) -> str:
    """A chart as a separate file, with its style embedded."""
    style = (Path(__file__).with_name("templates") / "charts.css").read_text(encoding="utf-8")
    head, _, rest = svg.partition(">")
    return f"{head}><style>{style}</style>{rest}\n"


def _scale(table: Table) -> Callable[[float], float]:
    """Share of the roof to percent of the width. With a warm cache, a rung can exceed the roof."""
    top = max([1.0, *(r.of_roof for r in table.rows if r.of_roof)])
    return lambda share: 100 * share / top


def _bar(row: Row, y: int, scale: Callable[[float], float]) -> list[str]:
    name = row.name.removeprefix("peer:")
    out = [
        f'<g class="row b-{row.backend}">',
        f"<title>{escape(_tooltip(row))}</title>",
        f'<circle class="dot" cx="5" cy="{y + 11}" r="4.5"/>',
        _text(15, y + 15, name, "name", unit=""),
    ]
    track = f'x="0" y="{y + 23}" width="100%" height="{BAR}" rx="3"'
    if row.rung:
        out.append(_text(15 + 8 * len(name) + 12, y + 15, row.rung.idea, "idea", unit=""))
    if not row.timed:
        out.append(_text(100, y + 15, _short(row.status), "missing", anchor="end"))
        return [*out, f'<rect class="track none" {track}/></g>']
    figure = f"{microseconds(row.cold)}, {row.rate}"
    share = row.of_roof
    out.append(
        f'<text class="value" x="100%" y="{y + 15}" text-anchor="end">'
        f'<tspan class="figure">{escape(figure)} </tspan>'
        f'<tspan class="share">{percent(share)}</tspan></text>'
    )
    out.append(f'<rect class="track" {track}/>')
    if share is None:  # the roof was measured in another run
        return [*out, "</g>"]
    end = scale(share)
    out.append(f'<rect class="bar" x="0" y="{y + 23}" width="{end:.2f}%" height="{BAR}" rx="3"/>')
    middle = y + 23 + BAR / 2
    if row.interval and row.cold:
        low, high = (scale(share * row.cold / t) for t in reversed(row.interval))
        out.append(_line("whisker", f"{low:.2f}%", middle, f"{high:.2f}%", middle))
    if row.over_below:
        inside = end > 88
        where = 'class="step in" dx="-8" text-anchor="end"' if inside else 'class="step" dx="8"'
        at = min(end, scale(1.0)) if inside else end  # not across the roof's line
        factor = times(row.over_below)
        out.append(f'<text {where} x="{at:.2f}%" y="{middle + 4}">{factor}</text>')
    roof = f"{scale(1.0):.2f}%"
    return [*out, _line("roof", roof, y + 19, roof, y + 27 + BAR), "</g>"]


def _tooltip(row: Row) -> str:
    lines = [row.name.removeprefix("peer:")]
    if row.rung:
        lines.append(row.rung.idea)
    if row.interval:
        low, high = (microseconds(t) for t in row.interval)
        lines.append(f"cold {microseconds(row.cold)} (95%: {low} to {high})")
    for name, value in (("warm", row.warm), ("host", row.host)):
        if value is not None:
            lines.append(f"{name} {microseconds(value)}")
    if row.over_best:
        lines.append(f"{times(row.over_best)} the fastest of torch and the peers")
    return "\n".join(lines + ([row.status] if row.status else []))


def _short(status: str) -> str:
    return status if len(status) <= 34 else status[:33] + "…"


def _roof_note(table: Table) -> str:
    assert table.roof
    mix = table.roof.rung.removeprefix("roof:")
    kind = {"r1w1": "copy", "r1w0": "read", "r0w1": "fill"}.get(mix, f"{mix} stream")
    return f"roof: {rate(table.roof.gbps)} measured {kind} of {size(table.bytes)}"


@dataclass(frozen=True)
class Series:
    """A line of a chart: (x, y) points; `kind` is a colour class."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]


def time_over_size(series: Sequence[Series], *, name: str) -> str:
    """Cold time over bytes moved, both axes logarithmic. Points are (bytes, microseconds)."""
    points = [p for s in series for p in s.points]
    xs, ys = _Axis([p[0] for p in points], base=2), _Axis([p[1] for p in points])
    return _series(series, xs, ys, lambda p: p[1], microseconds, name, "cold time")


def rate_over_size(series: Sequence[Series], *, name: str) -> str:
    """Rate over bytes moved, y linear from zero. Points are (bytes, microseconds)."""
    points = [p for s in series for p in s.points]
    xs, ys = _Axis([p[0] for p in points], base=2), _Linear([_gbps(p) for p in points])
    return _series(series, xs, ys, _gbps, rate, name, "rate")


def _gbps(point: tuple[float, float]) -> float:
    return point[0] / point[1] / 1e3


def _series(
    series: Sequence[Series],
    xs: _Axis,
    ys: _Axis | _Linear,
    value: Callable[[tuple[float, float]], float],
    y_text: Callable[[float], str],
    name: str,
    y_label: str,
) -> str:
    height = 260
    parts: list[str] = []
    parts += _grid(xs, ys, height, x_text=lambda v: size(round(v)), y_text=y_text)
    for s in sorted(series, key=lambda s: s.kind == "best"):
        at = [(100 * xs.at(p[0]), (1 - ys.at(value(p))) * height) for p in s.points]
        for (x1, y1), (x2, y2) in pairwise(_middles(at)):
            parts.append(_line(f"path b-{s.kind}", f"{x1:.2f}%", y1, f"{x2:.2f}%", y2))
        for (x, y), p in zip(at, s.points, strict=True):
            tip = f"{s.name}\n{size(round(p[0]))}: {microseconds(p[1])}, {rate(_gbps(p))}"
            parts.append(_dot(s.kind, x, y, tip))
    return _plot(parts, height, f"{name}: {y_label} over bytes moved", "bytes moved", y_label)


def _middles(at: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """One point for each x; the mean if shapes of the same size differ."""
    by_x: dict[float, list[float]] = {}
    for x, y in at:
        by_x.setdefault(x, []).append(y)
    return [(x, sum(found) / len(found)) for x, found in sorted(by_x.items())]


@dataclass(frozen=True)
class Point:
    """A dot of the roofline: flop per byte, GFLOP/s. `group` labels its column."""

    group: str
    name: str
    kind: str
    intensity: float
    gflops: float


def roofline(points: Sequence[Point], *, memory: float, compute: float | None, machine: str) -> str:
    """The roofline: GFLOP/s over flop per byte, with the measured roofs.

    Args:
        memory: GB/s of the fastest measured stream.
        compute: GFLOP/s of the measured arithmetic roof, or None.
    """
    points = [p for p in points if p.intensity > 0 and p.gflops > 0]
    if not points:
        return ""
    left = min(p.intensity for p in points) / 2
    right = max(p.intensity for p in points) * 2
    if compute:
        right = max(right, 3 * compute / memory)
    xs = _Axis([left, right])
    tops = [memory * x for x in (left, right)]
    if compute:
        tops = [min(t, compute) for t in tops]
    ys = _Axis([min(p.gflops for p in points), *tops])
    height = 320
    parts = _grid(xs, ys, height, x_text=_plain, y_text=_gflops)
    knee = compute / memory if compute else right
    ends = [(left, memory * left), (min(knee, right), memory * min(knee, right))]
    parts.append(_segment("roof", ends, xs, ys, height))
    if compute and knee < right:
        parts.append(_segment("roof", [(knee, compute), (right, compute)], xs, ys, height))
    for p in sorted(points, key=lambda p: p.kind != "peer"):
        tip = f"{p.name}\n{_plain(p.intensity)} flop/byte, {_gflops(p.gflops)}FLOP/s"
        x, y = 100 * xs.at(p.intensity), (1 - ys.at(p.gflops)) * height
        parts.append(_dot(p.kind, x, y, tip))
    parts += _columns(points, xs, ys, height)
    label = f"roofline of {machine}"
    return _plot(parts, height, label, "flop per byte of DRAM traffic", "FLOP/s")


def _columns(points: list[Point], xs: _Axis, ys: _Axis, height: int) -> list[str]:
    """The operators' names below their columns of dots or, if there is no room, above. A name that
    would overlap a dot or another name in every position is shown only in the dots' tooltips."""
    at = [(100 * xs.at(p.intensity), (1 - ys.at(p.gflops)) * height, p.group) for p in points]
    taken = [(x, y, 0.0) for x, y, _ in at]
    out: list[str] = []
    for group in dict.fromkeys(group for _, _, group in sorted(at)):
        mine = [(x, y) for x, y, g in at if g == group]
        x, lowest = max(mine, key=lambda dot: dot[1])
        highest = min(y for _, y in mine)
        half = 0.4 * len(group)  # of its width, in percent of a page's
        below = range(round(lowest) + 18, height - 4, 13)
        for y in (*below, *range(round(highest) - 10, 8, -13)):
            if not any(abs(x - a) < half + h and -9 < y - b < 14 for a, b, h in taken):
                taken.append((x, y, half))
                out.append(_text(x, y, group, "axis group", anchor="middle"))
                break
    return out


def band(
    edges: Sequence[tuple[float, float]],
    curves: Sequence[tuple[str, Sequence[float]]],
    *,
    at: Sequence[str],
    title: str,
    caption: str,
) -> str:
    """Curves inside a band, as distances from the band's middle; a separate file.

    Args:
        edges: the band's lowest and highest value at each point.
        curves: a colour class, and a value at each point.
        at: the points' names.
    """
    width, left, top, height = 880, 64, 66, 300
    middles = [(low + high) / 2 for low, high in edges]
    far = max(
        abs(v - m)
        for ys in (*zip(*edges, strict=True), *(ys for _, ys in curves))
        for v, m in zip(ys, middles, strict=True)
    )
    step = (width - left) / len(edges)

    def place(i: int, away: float) -> tuple[float, float]:
        return left + (i + 0.5) * step, top + height / 2 * (1 - away / (1.05 * far))

    parts = [_text(0, 16, title, "title", unit=""), _text(0, 36, caption, "axis", unit="")]
    for i, (low, high) in enumerate(edges):
        x, y = place(i, high - middles[i])
        tall = place(i, low - middles[i])[1] - y
        shape = f'x="{x - step / 2:.1f}" y="{y:.1f}" width="{step:.1f}" height="{tall:.1f}"'
        parts.append(f'<rect class="track" {shape}/>')
        if i % 2:
            parts.append(
                _text(round(x), top + height + 17, at[i], "axis", unit="", anchor="middle")
            )
    for away in (-far, 0.0, far):
        y = place(0, away)[1]
        parts.append(_line("grid", str(left), y, str(width), y))
        parts.append(_text(left - 6, y + 4, f"{away:+.3f}", "axis", unit="", anchor="end"))
    for kind, ys in curves:
        points = (place(i, v - m) for i, (v, m) in enumerate(zip(ys, middles, strict=True)))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="curve b-{kind}" points="{line}"/>')
    return _svg(parts, top + height + 24, title, width)


class _Axis:
    """A logarithmic axis over the values, with a margin and round ticks."""

    def __init__(self, values: Iterable[float], base: int = 10):
        values = list(values)
        low, high = math.log(min(values), base), math.log(max(values), base)
        margin = max((high - low) * 0.06, 0.08)
        self.base, self.low, self.high = base, low - margin, high + margin

    def at(self, value: float) -> float:
        """0 at the axis's start, 1 at its end."""
        return (math.log(value, self.base) - self.low) / (self.high - self.low)

    def ticks(self, at_most: int = 6) -> list[float]:
        whole = range(math.ceil(self.low), math.floor(self.high) + 1)
        step = max(1, -(-len(whole) // at_most))
        ticks = [float(self.base) ** k for k in whole if k % step == 0]
        if len(ticks) >= 2 or self.base == 2:
            return ticks
        fine = [m * 10.0**k for k in range(math.floor(self.low), whole.stop) for m in (1, 2, 5)]
        return [t for t in fine if 0 <= self.at(t) <= 1]


class _Linear:
    """A linear axis from zero to over the largest value."""

    def __init__(self, values: Iterable[float]):
        self.high = 1.05 * max(values)

    def at(self, value: float) -> float:
        return value / self.high

    def ticks(self) -> list[float]:
        rough = self.high / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
        return [k * step for k in range(int(self.high / step) + 1)]


def _grid(
    xs: _Axis,
    ys: _Axis | _Linear,
    height: int,
    *,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
) -> list[str]:
    out: list[str] = []
    for t in ys.ticks():
        y = (1 - ys.at(t)) * height
        out.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(_text(-6, y + 4, y_text(t), "axis", unit="", anchor="end"))
    for t in xs.ticks(5):
        x = 100 * xs.at(t)
        out.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{height}"/>')
        out.append(_text(round(x, 2), height + 17, x_text(t), "axis", anchor="middle"))
    return out


def _plot(parts: list[str], height: int, label: str, x_label: str, y_label: str) -> str:
    """The axes' names around a plot; charts.css keeps the margins that its ticks stand in."""
    names = _text(-58, -12, y_label, "axis", unit="")
    names += _text(100, height + 36, x_label, "axis", anchor="end")
    return _svg([*parts, names], height, label, kind="chart plot")


def _segment(kind: str, ends, xs: _Axis, ys: _Axis, height: int) -> str:
    (x1, y1), (x2, y2) = ((100 * xs.at(x), (1 - ys.at(y)) * height) for x, y in ends)
    return _line(kind, f"{x1:.2f}%", y1, f"{x2:.2f}%", y2)


def _line(kind: str, x1: str, y1: float, x2: str, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1:.1f}" x2="{x2}" y2="{y2:.1f}"/>'


def _dot(kind: str, x: float, y: float, tip: str) -> str:
    return (
        f'<circle class="point b-{kind}" cx="{x:.2f}%" cy="{y:.1f}" r="4.5">'
        f"<title>{escape(tip)}</title></circle>"
    )


def _text(x: float, y: float, text: str, kind: str, *, unit: str = "%", anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{x}{unit}" y="{y:.1f}"{where}>{escape(text)}</text>'


def _svg(
    parts: list[str], height: float, label: str, width: int | None = None, kind: str = "chart"
) -> str:
    return (
        f'<svg class="{kind}" role="img" aria-label="{escape(label)}" '
        f'width="{width or "100%"}" height="{height:.0f}" xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(parts)}</svg>"
    )


def _plain(value: float) -> str:
    return f"{value:g}" if value >= 0.01 else f"{value:.1e}"


def _gflops(value: float) -> str:
    for factor, unit in ((1e6, "P"), (1e3, "T"), (1.0, "G"), (1e-3, "M")):
        if value >= factor or unit == "M":
            return f"{value / factor:.3g} {unit}"
    raise AssertionError(value)
