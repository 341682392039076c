"""Pictures of the machine: grid, block, warp and thread, and the memory of an H200.

tools.readme_tables writes them to docs/threads.svg and docs/memory.svg, which the pages of both
languages show. Sizes and bandwidths are those of the shipped records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kernelwright.support import svg
from kernelwright.workbench.lessons import recorded

ROOT = Path(__file__).resolve().parents[1]
DEVICE = ROOT / "records" / "nvidia-h200" / "calls.json"
TITLES = {
    "threads": "Grid, block, warp and thread",
    "memory": "The memory of an H200",
}
WIDTH = 400
BLOCKS, THREADS, LANES = 4, 256, 32  # blocks of the grid, threads of a block, lanes of a warp
BLOCK, WARP, LANE = 1, 2, 5  # the thread that the picture follows
STYLE = """
:root { --ink: #1b1c1e; --soft: #565a61; --track: #eceef0; --edge: #8b9098; --load: #1f5fd0 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef1; --soft: #a9aeb6; --track: #262a30; --edge: #6d737c; --load: #77a7ff }
}
text { fill: var(--ink); font: 12px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif }
.title { font-weight: 650; font-size: 15px } .soft { fill: var(--soft) } .head { font-weight: 650 }
.name { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
.cell { fill: var(--track); stroke: var(--edge) } .load { fill: var(--load) }
.zoom { fill: var(--load); opacity: 0.16 }
"""


@dataclass(frozen=True)
class Level:
    """A level of the memory.

    Attributes:
        owner: what shares it.
        size: per SM, or of the whole GPU.
        rates: measured bandwidths in GB/s, and what was measured.
    """

    name: str
    owner: str
    size: str
    rates: tuple[tuple[float, str], ...]


def levels() -> list[Level]:
    """The levels from the nearest to a thread to the farthest, from the records of an H200."""
    gpu = json.loads(DEVICE.read_text(encoding="utf-8"))["environment"]["gpu"]
    sms, registers, shared = gpu["sms"], 4 * gpu["registers_per_sm"], gpu["shared_per_sm"]
    return [
        Level("Registers", "of one thread", _of_sms(registers, sms), ()),
        Level(
            "Shared memory",
            "of one block",
            _of_sms(shared, sms),
            ((_rate("roof:shared", "16KiB a block"), "read"),),
        ),
        Level(
            "L2 cache",
            "of all SMs",
            f"{gpu['l2'] >> 20} MiB",
            ((_rate("roof:l2", "8MiB"), "read"),),
        ),
        Level(
            "DRAM (HBM)",
            "global memory",
            f"{gpu['memory'] / 2**30:.0f} GiB",
            (
                (_rate("roof:r1w0", "2048MiB"), "read"),
                (_rate("roof:r1w1", "2048MiB"), "copy"),
            ),
        ),
    ]


def _of_sms(size: int, sms: int) -> str:
    return f"{size >> 10} KiB an SM, {size * sms / 2**20:.0f} MiB in all"


def _rate(roof: str, case: str) -> float:
    gbps = recorded.record("roofs", roof, case).gbps
    if gbps is None:
        raise ValueError(f"{roof} on {case}: no bytes in its record")
    return gbps


def memory() -> str:
    """Levels of an H200's memory below each other, their sizes, and bars of their bandwidths."""
    drawn_levels = levels()
    fastest = max(rate for level in drawn_levels for rate, _ in level.rates)
    parts = [
        _text(0, 16, TITLES["memory"], "title"),
        _text(0, 38, "Bars: measured bandwidth of the whole GPU.", "soft"),
        _text(0, 54, "From top to bottom: farther from the thread, and slower.", "soft"),
    ]
    y = 68
    for level in drawn_levels:
        rows = level.rates or ((0.0, "bandwidth not measured"),)
        tall = 30 + 20 * len(rows)
        parts.append(svg.rect("cell", 0.5, y + 0.5, WIDTH - 1, tall))
        parts.append(_text(10, y + 20, level.name, "head"))
        parts.append(_text(124, y + 20, level.owner, "soft"))
        parts.append(_text(WIDTH - 10, y + 20, level.size, "", "end"))
        for i, (rate, what) in enumerate(rows):
            line = y + 30 + 20 * i
            length = 240 * rate / fastest
            if rate:
                parts.append(svg.rect("load", 10, line, length, 12))
                what = f"{rate / 1e3:.2f} TB/s, {what}"
            parts.append(_text(10 + length + 8 * bool(rate), line + 10, what, "soft"))
        y += tall + 8
    said = "; ".join(
        f"{v.name}: {v.size}" + "".join(f", {r / 1e3:.2f} TB/s {w}" for r, w in v.rates)
        for v in drawn_levels
    )
    return svg.picture(parts, WIDTH, y, f"{TITLES['memory']}. {said}", STYLE)


def threads() -> str:
    """A grid, one of its blocks, one of its warps, and the index of one of its threads."""
    thread = WARP * LANES + LANE
    index = BLOCK * THREADS + thread
    rows = (
        (f"Grid: {BLOCKS} blocks", "all blocks of a launch", "blockIdx.x", BLOCKS, BLOCK),
        (
            f"Block {BLOCK}: {THREADS} threads, {THREADS // LANES} warps",
            "runs on one SM",
            "warp",
            THREADS // LANES,
            WARP,
        ),
        (
            f"Warp {WARP}: threads {WARP * LANES} to {WARP * LANES + LANES - 1}",
            "executes together",
            "lane",
            LANES,
            LANE,
        ),
    )
    parts = [_text(0, 16, TITLES["threads"], "title")]
    y = 42
    for i, (head, role, unit, count, chosen) in enumerate(rows):
        wide = WIDTH / count
        parts.append(_text(0, y, head, "head"))
        parts.append(_text(WIDTH, y, role, "soft", "end"))
        for c in range(count):
            parts.append(
                svg.rect("load" if c == chosen else "cell", c * wide + 0.5, y + 8, wide - 2, 22)
            )
        step = 1 if count < LANES else 5
        for c in range(0, count, step):
            parts.append(_text((c + 0.5) * wide, y + 45, str(c), "soft", "middle"))
        parts.append(_text(0, y + 61, f"{unit} 0 to {count - 1}", "soft"))
        if i < len(rows) - 1:
            left, right = chosen * wide + 0.5, (chosen + 1) * wide - 1.5
            corners = f"M{left:.1f} {y + 30}H{right:.1f}L{WIDTH} {y + 72}H0Z"
            parts.append(svg.element("path", kind="zoom", d=corners))
        y += 88
    parts.append(_text(0, y, "Thread", "head"))
    parts.append(_text(WIDTH, y, "has its own registers", "soft", "end"))
    for line, words in enumerate(
        (
            f"threadIdx.x = {WARP} * {LANES} + {LANE} = {thread}",
            "i = blockIdx.x * blockDim.x + threadIdx.x",
            f"  = {BLOCK} * {THREADS} + {thread} = {index}",
        )
    ):
        parts.append(_text(0, y + 20 + 18 * line, words, "name"))
    label = (
        f"{TITLES['threads']}: a grid of {BLOCKS} blocks, a block of {THREADS} threads in "
        f"{THREADS // LANES} warps, a warp of {LANES} lanes; lane {LANE} of warp {WARP} of block "
        f"{BLOCK} has the index {index}"
    )
    return svg.picture(parts, WIDTH, y + 66, label, STYLE)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "") -> str:
    return svg.text(x, y, words, kind, anchor, **{"xml:space": "preserve"})


PICTURES = {"threads": threads, "memory": memory}
