"""Charts over sizes, the roofline, and curves inside a band, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernelwright.support.svg import drawing, element, line, rect, text
from kernelwright.support.svg import points as corners
from kernelwright.workbench.records.metrics import microseconds, rate, size

from .ladder_chart import ladder
from .svg import (
    NARROW,
    Axis,
    Linear,
    grid,
    marker,
    plain,
    plot,
    standalone,
    wrapped,
)

__all__ = [
    "Point", "Series", "band", "ladder", "rate_over_size", "roofline", "sizes", "standalone",
    "time_over_size",
]  # fmt: skip
ALIKE = 1.05  # sizes that differ by a smaller factor are one point of a line
HERE = "here"  # the class of markers of values measured here; other markers have none


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        kind: a color class.
        points: (bytes, microseconds).
        here: whether each point was measured on this machine; otherwise its record was shipped.
    """

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]
    here: tuple[bool, ...] = ()


def time_over_size(series: Sequence[Series], *, name: str) -> str:
    """Cold time over bytes moved, both axes logarithmic. Points are (bytes, microseconds)."""
    points = [p for s in series for p in s.points]
    xs, ys = Axis([p[0] for p in points], base=2), Axis([p[1] for p in points])
    return _series(series, xs, ys, lambda p: p[1], microseconds, name, "cold time")


def rate_over_size(series: Sequence[Series], *, name: str) -> str:
    """Rate over bytes moved, y linear from zero. Points are (bytes, microseconds)."""
    points = [p for s in series for p in s.points]
    xs, ys = Axis([p[0] for p in points], base=2), Linear([_gbps(p) for p in points])
    return _series(series, xs, ys, _gbps, rate, name, "rate")


def _gbps(point: tuple[float, float]) -> float:
    return point[0] / point[1] / 1e3


def _series(
    series: Sequence[Series],
    xs: Axis,
    ys: Axis | Linear,
    value: Callable[[tuple[float, float]], float],
    y_text: Callable[[float], str],
    name: str,
    y_label: str,
) -> str:
    height = 260
    parts: list[str] = []
    parts += grid(xs, ys, height, x_text=lambda v: size(round(v)), y_text=y_text)
    for s in sorted(series, key=lambda s: s.kind == "best"):
        at = [(100 * xs.at(p[0]), (1 - ys.at(value(p))) * height) for p in s.points]
        for (x1, y1), (x2, y2) in pairwise(_middles([p[0] for p in s.points], at)):
            parts.append(line(f"path b-{s.kind}", f"{x1:.2f}%", y1, f"{x2:.2f}%", y2))
        for (x, y), p, here in zip(at, s.points, s.here or (False,) * len(at), strict=True):
            where = "measured here" if here else "shipped record"
            tip = f"{s.name}, {where}\n{size(round(p[0]))}: {microseconds(p[1])}, {rate(_gbps(p))}"
            parts.append(marker(s.kind, f"{x:.2f}%", y, tip, HERE if here else ""))
    return plot(parts, height, f"{name}: {y_label} over bytes moved", "bytes moved", y_label)


def sizes(numbers: Iterable[float]) -> list[list[float]]:
    """The different sizes, in groups of those that are alike."""
    groups: list[list[float]] = []
    for n in sorted(set(numbers)):
        if groups and n < ALIKE * groups[-1][0]:
            groups[-1].append(n)
        else:
            groups.append([n])
    return groups


def _middles(
    numbers: Sequence[float], at: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """One point for each group of sizes: the mean, so that no line is vertical."""
    out: list[tuple[float, float]] = []
    for group in sizes(numbers):
        alike = [place for n, place in zip(numbers, at, strict=True) if n in group]
        xs, ys = zip(*alike, strict=True)
        out.append((sum(xs) / len(xs), sum(ys) / len(ys)))
    return out


@dataclass(frozen=True)
class Point:
    """A dot of the roofline: FLOP per byte, GFLOP/s. `group`: the label of its column; `here`: see
    Series."""

    group: str
    name: str
    kind: str
    intensity: float
    gflops: float
    here: bool = False


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
    xs = Axis([left, right])
    tops = [memory * x for x in (left, right)]
    if compute:
        tops = [min(t, compute) for t in tops]
    ys = Axis([min(p.gflops for p in points), *tops])
    height = 320
    parts = grid(xs, ys, height, x_text=plain, y_text=_gflops)
    knee = compute / memory if compute else right
    ends = [(left, memory * left), (min(knee, right), memory * min(knee, right))]
    parts.append(_segment("roof", ends, xs, ys, height))
    if compute and knee < right:
        parts.append(_segment("roof", [(knee, compute), (right, compute)], xs, ys, height))
    for p in sorted(points, key=lambda p: p.kind != "peer"):
        tip = f"{p.name}\n{plain(p.intensity)} flop/byte, {_gflops(p.gflops)}FLOP/s"
        x, y = 100 * xs.at(p.intensity), (1 - ys.at(p.gflops)) * height
        parts.append(marker(p.kind, f"{x:.2f}%", y, tip, HERE if p.here else ""))
    parts += _columns(points, xs, ys, height)
    label = f"roofline of {machine}"
    return plot(parts, height, label, "flop per byte of DRAM traffic", "FLOP/s")


def _columns(points: list[Point], xs: Axis, ys: Axis, height: int) -> list[str]:
    """The operators' names below their columns of dots or, if there is no room, above. A name that
    would overlap a dot or another name in every position is shown only in the dots' tooltips."""
    at = [(100 * xs.at(p.intensity), (1 - ys.at(p.gflops)) * height, p.group) for p in points]
    taken = [(x, y, 0.0) for x, y, _ in at]
    out: list[str] = []
    for group in dict.fromkeys(group for _, _, group in sorted(at)):
        mine = [(x, y) for x, y, g in at if g == group]
        x, lowest = max(mine, key=lambda dot: dot[1])
        highest = min(y for _, y in mine)
        half = 0.4 * len(group)  # half the label's width, in percent of a page's
        below = range(round(lowest) + 18, height - 4, 13)
        for y in (*below, *range(round(highest) - 10, 8, -13)):
            if not any(abs(x - a) < half + h and -9 < y - b < 14 for a, b, h in taken):
                taken.append((x, y, half))
                out.append(text(f"{x}%", y, group, "axis group", "middle"))
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
        curves: a color class, and a value at each point.
        at: the points' names.
    """
    parts, below = wrapped(16, title, "title", 8.8)
    lines, top = wrapped(below, caption, "axis", 6.4)
    parts += lines
    width, left, height = NARROW, 48, 260
    middles = [(low + high) / 2 for low, high in edges]
    far = max(
        abs(v - m)
        for ys in (*zip(*edges, strict=True), *(ys for _, ys in curves))
        for v, m in zip(ys, middles, strict=True)
    )
    step = (width - left) / len(edges)
    every = max(2, math.ceil(40 / step))  # number of points from one label to the next

    def place(i: int, away: float) -> tuple[float, float]:
        return left + (i + 0.5) * step, top + height / 2 * (1 - away / (1.05 * far))

    for i, (low, high) in enumerate(edges):
        x, y = place(i, high - middles[i])
        tall = place(i, low - middles[i])[1] - y
        parts.append(rect("track", x - step / 2, y, step, tall))
        if (i + 1) % every == 0:
            parts.append(text(round(x), top + height + 17, at[i], "axis", "middle"))
    for away in (-far, 0.0, far):
        y = place(0, away)[1]
        parts.append(line("grid", str(left), y, str(width), y))
        parts.append(text(left - 6, y + 4, f"{away:+.3f}", "axis", "end"))
    for kind, ys in curves:
        curve = (place(i, v - m) for i, (v, m) in enumerate(zip(ys, middles, strict=True)))
        parts.append(element("polyline", kind=f"curve b-{kind}", points=corners(curve)))
    return drawing(parts, top + height + 24, title, width)


def _segment(kind: str, ends, xs: Axis, ys: Axis, height: int) -> str:
    (x1, y1), (x2, y2) = ((100 * xs.at(x), (1 - ys.at(y)) * height) for x, y in ends)
    return line(kind, f"{x1:.2f}%", y1, f"{x2:.2f}%", y2)


def _gflops(value: float) -> str:
    for factor, unit in ((1e6, "P"), (1e3, "T"), (1.0, "G"), (1e-3, "M")):
        if value >= factor or unit == "M":
            return f"{value / factor:.3g} {unit}"
    raise AssertionError(value)
