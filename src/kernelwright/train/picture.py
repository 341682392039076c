"""Pictures of curves: self-contained SVG files for light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.support import svg

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 32, 64, 44
_COLOURS = ("a", "b", "c", "d", "e", "f")
_STYLE = """
:root { --ink: #1b1c1e; --soft: #5f6268; --line: #d8dade; --paper: #ffffff; --a: #17995c;
  --b: #c2417c; --c: #2f6fde; --d: #b26a00; --e: #7a4fd0; --f: #4a8f99 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef1; --soft: #a0a5ad; --line: #3a3d42; --paper: #17181b; --a: #35bd7d;
    --b: #ea77a8; --c: #7aa5f5; --d: #e0a24a; --e: #ab8cf0; --f: #7fc3cd }
}
text { fill: var(--ink); font: 13px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif }
.title { font-size: 17px; font-weight: 650 } .soft { fill: var(--soft) }
.paper { fill: var(--paper) } .grid { stroke: var(--line); stroke-width: 1 }
path { fill: none; stroke-width: 2; stroke-linejoin: round }
.faint { opacity: 0.3; stroke-width: 1 }
""" + "".join(
    f".s-{c} {{ stroke: var(--{c}) }} .t-{c}, .f-{c} {{ fill: var(--{c}) }} " for c in _COLOURS
)


@dataclass(frozen=True)
class Curve:
    """Points of a line.

    Attributes:
        faint: drawn thin, in the background, without a legend.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    faint: bool = False
    colour: int = 0


def curves(
    title: str,
    drawn: Sequence[Curve],
    *,
    caption: str = "",
    x_name: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """A picture of curves with axes; points that are not finite are omitted.

    Args:
        caption: a line below the title.
        x_name: what the horizontal axis shows.
        log_x, log_y: logarithmic axes, for values above 0.
    """
    points = [_finite(c, log_x, log_y) for c in drawn]
    every = [p for line in points for p in line]
    xs = _Axis([x for x, _ in every], log_x, LEFT, WIDTH - RIGHT)
    ys = _Axis([y for _, y in every], log_y, HEIGHT - BOTTOM, TOP)
    parts = [svg.rect("paper", 0, 0, WIDTH, HEIGHT)]
    parts.append(svg.text(16, 26, title, "title"))
    parts.append(svg.text(16, 47, caption, "soft"))
    for value in ys.ticks():
        y = ys.place(value)
        parts.append(svg.line("grid", LEFT, y, WIDTH - RIGHT, y))
        parts.append(svg.text(LEFT - 8, y + 4, _number(value), "soft", "end"))
    for value in xs.ticks():
        parts.append(
            svg.text(xs.place(value), HEIGHT - BOTTOM + 18, _number(value), "soft", "middle")
        )
    parts.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "soft", "middle"))
    for curve, line in zip(drawn, points, strict=True):
        parts.append(_path(curve, line, xs, ys))
    parts += _legend([c for c in drawn if not c.faint])
    return svg.picture(parts, WIDTH, HEIGHT, f"{title}. {caption}", _STYLE)


def smooth(values: Sequence[float], over: int) -> list[float]:
    """The mean of each value and up to `over` - 1 values before it."""
    means: list[float] = []
    total = 0.0
    for i, value in enumerate(values):
        total += value
        if i >= over:
            total -= values[i - over]
        means.append(total / min(i + 1, over))
    return means


class _Axis:
    def __init__(self, values: list[float], log: bool, begin: float, end: float):
        self.log, self.begin, self.end = log, begin, end
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if low == high:
            low, high = (low / 2, high * 2) if log and low > 0 else (low - 0.5, high + 0.5)
        self.low, self.high = low, high

    def place(self, value: float) -> float:
        low, high, value = ((math.log(v) if self.log else v) for v in (self.low, self.high, value))
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round values within the axis."""
        if self.log and self.high / self.low >= 8:
            powers = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
            every = max(1, len(powers) // 7)
            return [2.0**p for p in powers[::every]]
        step = svg.round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step)
        return [k * step for k in range(first, math.floor(self.high / step) + 1)]


def _finite(curve: Curve, log_x: bool, log_y: bool) -> list[tuple[float, float]]:
    return [
        (x, y)
        for x, y in zip(curve.x, curve.y, strict=True)
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]


def _path(curve: Curve, line: list[tuple[float, float]], xs: _Axis, ys: _Axis) -> str:
    colour = _COLOURS[curve.colour % len(_COLOURS)]
    placed = [(xs.place(x), ys.place(y)) for x, y in line]
    faint = " faint" if curve.faint else ""
    if len(placed) == 1:
        ((x, y),) = placed
        return svg.element("circle", kind=f"f-{colour}", cx=x, cy=y, r=4)
    if not placed:
        return ""
    return svg.element("path", kind=f"s-{colour}{faint}", d=f"M{svg.points(placed)}")


def _legend(drawn: list[Curve]) -> list[str]:
    parts: list[str] = []
    right = WIDTH - RIGHT
    for curve in reversed(drawn):
        colour = _COLOURS[curve.colour % len(_COLOURS)]
        parts.append(svg.text(right, 26, curve.name, f"t-{colour}", "end"))
        right -= 8 * len(curve.name) + 18
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
