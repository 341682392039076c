"""Pictures made of strips: rows of cells, each filled to some height. A strip shows the memory that
a warp's request touches, the banks it needs, or any series of shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.emulator.dissect import SECTOR
from kernelwright.emulator.trace import Request

from . import svg

BANKS, CELLS = 32, 256
LEFT, STRIP = 190, 512
ROW, WIDTH = 22, 880
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
class Strip:
    """A row of a picture.

    Attributes:
        label: left of the cells.
        cells: the height of each, 0 to 1.
        words: right of the cells.
        kind: "load", "store" or "atomic", which decides the colour.
        tall: pixels of height.
    """

    label: str
    cells: Sequence[float]
    words: str
    kind: str = "load"
    tall: int = ROW - 6


def drawn(strip: Strip, y: int) -> list[str]:
    """The parts of a strip whose top is at y."""
    wide = STRIP / len(strip.cells)
    base = y + strip.tall - 3
    out = [
        svg.text(0, base, strip.label, "name", unit=""),
        f'<rect class="track" x="{LEFT}" y="{y}" width="{STRIP}" height="{strip.tall}"/>',
    ]
    for i, filled in enumerate(strip.cells):
        if filled:
            tall = max(strip.tall * filled, 3)
            gap = 0.5 if wide < 8 else 1
            out.append(
                f'<rect class="{strip.kind}" x="{LEFT + i * wide:.1f}" '
                f'y="{y + strip.tall - tall:.1f}" '
                f'width="{wide - gap:.1f}" height="{tall:.1f}"/>'
            )
    out.append(svg.text(LEFT + STRIP + 8, base, strip.words, "soft", unit=""))
    return out


def picture(title: str, notes: Sequence[str], strips: Sequence[Strip], label: str) -> str:
    """An SVG that stands alone: a title, lines of explanation, and strips from top to bottom."""
    parts = [svg.text(0, 16, title, "title", unit="")]
    y = 36
    for note in notes:
        parts.append(svg.text(0, y, note, "soft", unit=""))
        y += 16
    y -= 2
    for strip in strips:
        parts += drawn(strip, y)
        y += strip.tall + 6
    return alone(parts, y + 4, label)


def alone(parts: list[str], height: float, label: str) -> str:
    """An SVG with its style."""
    drawing = svg.svg(parts, height, label, WIDTH)
    head, _, rest = drawing.partition(">")
    return f"{head}><style>{STYLE}</style>{rest}\n"


def sectors(r: Request, size: int) -> tuple[list[float], str]:
    """How much of each cell of a tensor is accessed, and the sectors that this takes."""
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
    """The words that lanes need of each bank, and the largest number of one bank."""
    words = {byte // 4 for o in r.offsets.values() for byte in range(o, o + max(r.width, 1), 4)}
    needed = [sum(w % BANKS == bank for w in words) for bank in range(BANKS)]
    most = max(needed)
    lanes = f"{len(r.offsets)} lane{'s' * (len(r.offsets) > 1)}"
    text = f"{most} word{'s' * (most > 1)} of a bank, {lanes}"
    return [n / max(most, 4) for n in needed], text
