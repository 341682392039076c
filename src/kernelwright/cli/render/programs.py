"""What follows a program's own output: findings, notes, costs by line."""

from __future__ import annotations

from pathlib import Path

from kernelwright.emulator.dissect import Access, Dissected
from kernelwright.emulator.program import Result

TIMED = (
    "kernelwright: the times above are those of the emulator on this CPU; its speed says nothing "
    "of a GPU's. `--dissect` counts sectors, bank conflicts and inactive lanes"
)


def after(found: Result, checked: bool) -> str:
    """The text that follows; empty if there is nothing to say."""
    lines: list[str] = []
    for f in found.findings:
        again = f" ({f.count} times)" if f.count > 1 else ""
        lines.append(f"kernelwright: {f.check}: {f.text}{again}")
    lines += [f"kernelwright: {n.text}" for n in found.notes if n.kind != "timed"]
    if checked and not lines:
        lines.append("kernelwright: the checks found nothing")
    for launch in found.dissected:
        lines += costs(launch)
    if any(n.kind == "timed" for n in found.notes):
        lines.append(TIMED)
    return "\n".join(lines)


def costs(launch: Dissected) -> list[str]:
    """A table of the accesses of a launch, and its divergent branches."""
    grid, block = (" x ".join(map(str, v)) for v in (launch.grid, launch.block))
    share = launch.lanes / (launch.steps * 32) if launch.steps else 1
    lines = [
        f"\n{launch.kernel}: first launch, {grid} blocks of {block}; {launch.steps:,} basic blocks "
        f"of warps, {share:.0%} of their lanes active",
        f"  {'line':<28}{'access':<30}{'requests':>10}{'lanes':>7}{'sectors':>9}"
        f"{'passes':>8}{'conflicts':>11}",
    ]
    lines += [_access(a) for a in sorted(launch.accesses, key=lambda a: (a.place.line, a.kind))]
    for b in launch.branches:
        if b.parted:
            lines.append(
                f"  {b.place.text}: {b.parted:,} of {b.executions:,} branches divide a warp"
            )
    return lines


def _access(a: Access) -> str:
    what = f"{a.kind} {Path(a.memory).name}, {a.width} B"
    shared = a.memory == "shared"
    sectors = "" if shared else f"{a.sectors / a.requests:.2f}"
    passes = f"{a.passes / a.requests:.2f}" if shared else ""
    conflicts = f"{a.passes - a.least_passes:,}" if shared else ""
    return (
        f"  {a.place.text:<28}{what:<30}{a.requests:>10,}{a.lanes / a.requests:>7.1f}{sectors:>9}"
        f"{passes:>8}{conflicts:>11}"
    )
