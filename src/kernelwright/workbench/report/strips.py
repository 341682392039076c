"""Pictures made of strips: rows of cells, each filled to some height. A strip shows the memory that
a warp's request touches, the banks it needs, or any series of fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.emulator.dissect import SECTOR
from kernelwright.emulator.trace import Request
from kernelwright.support.svg import drawing, rect, styled, text

from .svg import NARROW, wrapped

BANKS, CELLS = 32, 256
TEXT, GAP = 15, 7  # pixels of the line above a strip, and of the space below it
LEFT, BELOW = 34, 34  # pixels of the texts of axes
TITLE, LETTER = 8.8, 6.4  # mean widths of a letter
STYLE = """
:root { --ink: #1b1c1e; --soft: #565a61; --track: #eceef0; --load: #1f5fd0; --store: #9a5b00 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef1; --soft: #a9aeb6; --track: #262a30; --load: #77a7ff; --store: #e9a531 }
}
text { fill: var(--ink); font: 12px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif }
.title { font-weight: 650; font-size: 15px } .soft { fill: var(--soft) }
.name { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
.track { fill: var(--track) } .load { fill: var(--load) } .store, .atomic { fill: var(--store) }
"""


@dataclass(frozen=True)
class Axes:
    """The axes of a strip, whose cells then begin at LEFT; those of strips below it are in line.

    Attributes:
        across: ticks of the cells: a position, 0 to 1, and its value.
        up: ticks of the heights, likewise; the strip's label names them and their unit.
        name: the quantity of the cells and its unit, or "" for the grid without texts.
    """

    across: Sequence[tuple[float, str]]
    up: Sequence[tuple[float, str]] = ()
    name: str = ""


@dataclass(frozen=True)
class Strip:
    """A row of a picture.

    Attributes:
        label: text above the cells, on the left.
        cells: the height of each cell, 0 to 1.
        words: text above the cells, on the right.
        kind: "load", "store" or "atomic", which determines the color.
        tall: the height in pixels.
        axes: ticks, if the cells or their heights are quantities.
    """

    label: str
    cells: Sequence[float]
    words: str
    kind: str = "load"
    tall: int = 14
    axes: Axes | None = None

    @property
    def high(self) -> int:
        """Pixels of the whole row."""
        return TEXT + self.tall + GAP + BELOW * bool(self.axes and self.axes.name)


def drawn(strip: Strip, y: float) -> list[str]:
    """The parts of a strip whose top is at y."""
    left = LEFT if strip.axes else 0
    wide, base = (NARROW - left) / len(strip.cells), y + TEXT + strip.tall
    out = [
        text(0, y + 11, strip.label, "name"),
        text(NARROW, y + 11, strip.words, "soft", "end"),
        rect("track", left, y + TEXT, NARROW - left, strip.tall),
        *(_axes(strip.axes, base, strip.tall) if strip.axes else ()),
    ]
    for i, filled in enumerate(strip.cells):
        if filled:
            tall = max(strip.tall * filled, 3.0)
            gap = 0.4 if wide < 8 else 1
            out.append(rect(strip.kind, left + i * wide, base - tall, wide - gap, tall))
    return out


def _axes(axes: Axes, base: float, tall: int) -> list[str]:
    """Grid lines and their values; `base`: the position of the lower edge."""
    out: list[str] = []
    for at, value in axes.across:
        x = LEFT + at * (NARROW - LEFT)
        out.append(rect("soft", x, float(base - tall), 0.6, tall + 4 * bool(axes.name)))
        if axes.name:
            out.append(text(round(x), base + 16, value, "soft", "middle"))
    for at, value in axes.up:
        y = base - at * tall
        out.append(rect("soft", LEFT - 4, float(y), NARROW - LEFT + 4, 0.6))
        out.append(text(LEFT - 6, y + 4, value, "soft", "end"))
    if axes.name:
        out.append(text(NARROW, base + 31, axes.name, "soft", "end"))
    return out


def picture(title: str, notes: Sequence[str], strips: Sequence[Strip], label: str) -> str:
    """A self-contained SVG: a title, paragraphs of explanation, and strips below each other."""
    parts, y = head(title, notes)
    for strip in strips:
        parts += drawn(strip, y)
        y += strip.high
    return alone(parts, y, label)


def head(title: str, notes: Sequence[str]) -> tuple[list[str], float]:
    """The title and the explanation of a picture, and the position of its first strip."""
    parts, y = wrapped(16, title, "title", TITLE)
    for note in notes:
        lines, y = wrapped(y, note, "soft", LETTER)
        parts += lines
    return parts, y - 6


def alone(parts: list[str], height: float, label: str) -> str:
    """An SVG including its style."""
    return styled(drawing(parts, height, label, NARROW), STYLE)


def sectors(r: Request, size: int) -> tuple[list[float], str]:
    """The accessed fraction of each cell of a tensor, and the sectors that this takes, as text."""
    touched = {b // SECTOR for o in r.offsets.values() for b in (o, o + r.width - 1)}
    cell = max(SECTOR, -(-size // CELLS))
    cells = [0.0] * -(-size // cell)
    for offset in set(r.offsets.values()):
        for byte in range(offset, offset + r.width, min(r.width, 4)):
            cells[byte // cell] += min(r.width, 4) / cell
    used = len(set(r.offsets.values())) * r.width / (len(touched) * SECTOR)
    count = f"{len(touched)} sector{'s' * (len(touched) > 1)}"
    return [min(c, 1.0) for c in cells], f"{count}, {min(used, 1):.0%} used"


def banks(r: Request) -> tuple[list[float], str]:
    """The words that lanes need of each bank, and the maximum for one bank, as text."""
    words = {byte // 4 for o in r.offsets.values() for byte in range(o, o + max(r.width, 1), 4)}
    needed = [sum(w % BANKS == bank for w in words) for bank in range(BANKS)]
    most = max(needed)
    lanes = f"{len(r.offsets)} lane{'s' * (len(r.offsets) > 1)}"
    text = f"{most} word{'s' * (most > 1)} of a bank, {lanes}"
    return [n / max(most, 4) for n in needed], text
