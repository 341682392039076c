"""The parts of charts: axes, grids, markers and wrapped texts.

Horizontal positions are percentages, so a chart fills a desktop or a phone and its text keeps its
size. Colors are classes that templates/charts.css defines for light and dark mode; each color
class has its own marker shape.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

from kernelwright.support.svg import drawing, element, line, round_step, styled, text

#: The marker of each color class, within 6 units of the origin.
MARKERS = {
    "torch": '<circle r="4.5"/>',
    "inductor": '<path d="M-5 4.2L0-5L5 4.2Z"/>',
    "triton": '<path d="M-4.2-4.2H4.2V4.2H-4.2Z"/>',
    "cuda": '<path d="M0-6L5.6 0L0 6L-5.6 0Z"/>',
    "numba": '<path d="M-5-4.2L5-4.2L0 5Z"/>',
    "best": '<path d="M0-6L5.6 0L0 6L-5.6 0Z"/>',
    "peer": '<path class="open" d="M-4.5-4.5L4.5 4.5M-4.5 4.5L4.5-4.5"/>',
    "peer2": '<path class="open" d="M-5.5 0H5.5M0-5.5V5.5"/>',
    "peer3": '<circle class="open" r="4"/>',
}


#: Width in pixels of a picture in a separate file, so that phones do not shrink it.
NARROW = 400


class Axis:
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


class Linear:
    """A linear axis from zero to above the largest value."""

    def __init__(self, values: Iterable[float]):
        self.high = 1.05 * max(values)

    def at(self, value: float) -> float:
        return value / self.high

    def ticks(self) -> list[float]:
        step = round_step(self.high / 5)
        return [k * step for k in range(int(self.high / step) + 1)]


def grid(
    xs: Axis,
    ys: Axis | Linear,
    height: int,
    *,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
) -> list[str]:
    out: list[str] = []
    for t in ys.ticks():
        y = (1 - ys.at(t)) * height
        out.append(line("grid", 0, y, "100%", y))
        out.append(text(-6, y + 4, y_text(t), "axis", "end"))
    for t in xs.ticks(5):
        x = f"{100 * xs.at(t):.2f}%"
        out.append(line("grid", x, 0, x, height))
        out.append(text(x, height + 17, x_text(t), "axis", "middle"))
    return out


def plot(parts: list[str], height: int, label: str, x_label: str, y_label: str) -> str:
    """A plot with the names of its axes; charts.css reserves the margins for its ticks."""
    names = text(-58, -12, y_label, "axis")
    names += text("100%", height + 36, x_label, "axis", "end")
    return drawing([*parts, names], height, label, kind="chart plot")


def wrapped(y: float, words: str, kind: str, letter: float) -> tuple[list[str], float]:
    """The lines of a text in a picture NARROW pixels wide, and the position of the next text.

    Args:
        letter: the mean width of a letter in pixels; a line is 2.5 times as high.
    """
    lines = textwrap.wrap(words, int(NARROW / letter), break_long_words=False)
    high = round(2.5 * letter)
    return [text(0, y + i * high, s, kind) for i, s in enumerate(lines)], (y + len(lines) * high)


def plain(value: float) -> str:
    return f"{value:g}" if value >= 0.01 else f"{value:.1e}"


def marker(kind: str, x: str, y: float, tip: str = "", extra: str = "") -> str:
    """The marker of a color class.

    Args:
        x: a length, in percent or pixels.
        tip: shown when the pointer is over it.
        extra: further classes.
    """
    title = element("title", escape(tip)) if tip else ""
    named = f"point b-{kind}{extra and ' ' + extra}"
    return element("svg", MARKERS[kind] + title, kind=named, x=x, y=float(y))


def key(kind: str) -> str:
    """A marker for a legend."""
    size = {"width": 14, "height": 14, "viewBox": "-7 -7 14 14"}
    return element("svg", MARKERS[kind], kind=f"key b-{kind}", **size, aria_hidden="true")


def standalone(chart: str) -> str:
    """A chart as a separate file, with its style embedded."""
    style = (Path(__file__).with_name("templates") / "charts.css").read_text(encoding="utf-8")
    return styled(chart, style)
