"""A layout as an SVG that stands alone: a cell for each coordinate, with its offset."""

from __future__ import annotations

from kernelwright.support.svg import picture as drawn
from kernelwright.support.svg import rect, text

from . import algebra
from .algebra import Layout, Swizzled

CELL, MOST = 34, 64  # pixels, and rows or columns that are drawn
STYLE = """
:root { --ink: #1b1c1e; --line: #8b9098; --paper: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #eceef1; --line: #5f6268; --paper: #16181b } }
rect { stroke: var(--line) } .page { fill: var(--paper); stroke: none }
text { fill: var(--ink); font: 13px ui-monospace, monospace; text-anchor: middle }
.title { font-weight: 650; text-anchor: start }
.bank { fill: hsl(calc(var(--n) * 11.25deg) 70% 55% / 0.45) }
"""


def picture(of: Layout | Swizzled) -> str:
    """Rows are the first mode. Cells whose offsets are equal modulo 32 (banks, for words) have the
    same color. Of a large layout, the first 64 rows and columns are drawn."""
    table = [row[:MOST] for row in algebra.offsets(of)[:MOST]]
    width, height = CELL * (len(table[0]) + 1) + 8, CELL * (len(table) + 1) + 36
    parts = [rect("page", 0, 0, width, height), text(8, 20, str(of), "title")]
    for c in range(len(table[0])):
        parts.append(_text(c + 1, 0, str(c)))
    for r, row in enumerate(table):
        parts.append(_text(0, r + 1, str(r)))
        for c, offset in enumerate(row):
            x, y = CELL * (c + 1), 28 + CELL * (r + 1)
            parts.append(rect("bank", x, y, CELL, CELL, style=f"--n:{offset % 32}"))
            parts.append(_text(c + 1, r + 1, str(offset)))
    return drawn(parts, width, height, f"Offsets of {of}", STYLE)


def _text(column: int, row: int, words: str) -> str:
    return text(CELL * column + CELL // 2, 28 + CELL * row + CELL // 2 + 4, words)
