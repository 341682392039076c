"""Profiles in the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from .training import size

_ROWS = 30


def profile(found: Any) -> Table:
    """Kernels by time."""
    what = "kernel" if found.on_gpu else "PyTorch's operator, on a CPU"
    table = Table(title=f"{found.name}: {found.us / 1e3:.2f} ms", title_justify="left")
    table.add_column(what, overflow="fold", max_width=70)
    table.add_column("of the operator")
    for name in ("count", "ms", "share"):
        table.add_column(name, justify="right")
    for row in found.kernels[:_ROWS]:
        share = f"{row.us / found.us:.1%}" if found.us else ""
        table.add_row(row.kernel, row.operator, str(row.count), f"{row.us / 1e3:.3f}", share)
    rest = found.kernels[_ROWS:]
    if rest:
        us = sum(r.us for r in rest)
        table.add_row(f"{len(rest)} more", "", str(sum(r.count for r in rest)), f"{us / 1e3:.3f}",
                      f"{us / found.us:.1%}")  # fmt: skip
    return table


def operators(found: Any) -> Table:
    """Operators by time."""
    table = Table("operator", title="by operator", title_justify="left")
    for name in ("calls of kernels", "ms", "share"):
        table.add_column(name, justify="right")
    for row in found.operators[:_ROWS]:
        share = f"{row.us / found.us:.1%}" if found.us else ""
        table.add_row(row.operator, str(row.count), f"{row.us / 1e3:.3f}", share)
    return table


def files(found: Any) -> list[str]:
    trace, flame, memory = found.files
    peak = "" if found.peak_bytes is None else f", at most {size(found.peak_bytes)}"
    return [
        f"trace for ui.perfetto.dev: {trace}",
        f"flame graph: {flame}",
        f"memory: {memory}{peak}",
    ]


def swap(found: Any) -> list[str]:
    """What a rung changes."""
    usual, other = (us / 1e3 for us in found.us)
    c = found.comparison
    lines = [
        f"{found.operator}={found.rung}: {other:.3f} ms a step, dispatched {usual:.3f} ms: "
        f"{c.ratio:.3f}x as fast ({c.low:.3f} to {c.high:.3f}), {c.verdict}"
    ]
    if found.losses[0]:
        far = max(abs(a - b) for a, b in zip(*found.losses, strict=True))
        lines.append(f"losses of {len(found.losses[0])} steps differ by at most {far:.2g}")
    return lines


def counters(found: list[Any]) -> Table:
    """Nsight Compute's counters."""
    table = Table("kernel", title="Nsight Compute", title_justify="left")
    for name in ("count", "us", "DRAM %", "SM %", "warps %", "registers"):
        table.add_column(name, justify="right")
    for c in found[:_ROWS]:
        table.add_row(c.kernel, str(c.count), f"{c.us:.1f}", f"{c.dram:.0f}", f"{c.sm:.0f}",
                      f"{c.occupancy:.0f}", str(c.registers))  # fmt: skip
    return table
