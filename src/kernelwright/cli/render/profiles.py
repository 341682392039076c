"""Profiles in the terminal."""

from __future__ import annotations

from typing import Any

from .tables import Column, Table
from .training import size

_ROWS = 30


def profile(profiled: Any) -> Table:
    """Kernels by time."""
    what = "kernel" if profiled.on_gpu else "PyTorch's operator, on a CPU"
    table = Table(
        Column(what, wraps=True),
        Column("of the operator", 7),
        Column("count", 6, right=True),
        Column("ms", right=True),
        Column("share", 8, right=True),
        title=f"{profiled.name}: {profiled.us / 1e3:.2f} ms",
    )
    for row in profiled.kernels[:_ROWS]:
        share = f"{row.us / profiled.us:.1%}" if profiled.us else ""
        table.add(row.kernel, row.operator, str(row.count), f"{row.us / 1e3:.3f}", share)
    rest = profiled.kernels[_ROWS:]
    if rest:
        us = sum(r.us for r in rest)
        count = str(sum(r.count for r in rest))
        share = f"{us / profiled.us:.1%}" if profiled.us else ""
        table.add(f"{len(rest)} more", "", count, f"{us / 1e3:.3f}", share)
    return table


def operators(profiled: Any) -> Table:
    """Operators by time."""
    table = Table(
        Column("operator"),
        Column("calls of kernels", 6, right=True),
        Column("ms", right=True),
        Column("share", 8, right=True),
        title="by operator",
    )
    for row in profiled.operators[:_ROWS]:
        share = f"{row.us / profiled.us:.1%}" if profiled.us else ""
        table.add(row.operator, str(row.count), f"{row.us / 1e3:.3f}", share)
    return table


def files(profiled: Any) -> list[str]:
    trace, flame, memory = profiled.files
    peak = "" if profiled.peak_bytes is None else f", peak {size(profiled.peak_bytes)}"
    return [
        f"trace for ui.perfetto.dev: {trace}",
        f"flame graph: {flame}",
        f"memory: {memory}{peak}",
    ]


def swap(swapped: Any) -> list[str]:
    """The changes in time and loss that a rung causes."""
    usual, other = (us / 1e3 for us in swapped.us)
    c = swapped.comparison
    lines = [
        f"{swapped.operator}={swapped.rung}: {other:.3f} ms per step, dispatched {usual:.3f} ms: "
        f"{c.ratio:.3f}x as fast ({c.low:.3f} to {c.high:.3f}), {c.verdict}"
    ]
    if swapped.losses[0]:
        far = max(abs(a - b) for a, b in zip(*swapped.losses, strict=True))
        lines.append(f"losses of {len(swapped.losses[0])} steps differ by at most {far:.2g}")
    return lines


def counters(kernels: list[Any]) -> Table:
    """Nsight Compute's counters."""
    table = Table(
        Column("kernel", wraps=True),
        Column("count", 5, right=True),
        Column("us", 9, right=True),
        Column("DRAM %", 8, right=True),
        Column("SM %", 7, right=True),
        Column("warps %", 6, right=True),
        Column("registers", 4, right=True),
        title="Nsight Compute",
    )
    for c in kernels[:_ROWS]:
        numbers = f"{c.dram:.0f}", f"{c.sm:.0f}", f"{c.occupancy:.0f}", str(c.registers)
        table.add(c.kernel, str(c.count), f"{c.us:.1f}", *numbers)
    return table
