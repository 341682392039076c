"""The output of `verify --check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape

from kernelwright.workbench.sanitize.compute_sanitizer import Watched
from kernelwright.workbench.sanitize.report import Checked

MOST = 5  # findings shown per rung and check; JSON has all


def watched(rows: Sequence[Watched]) -> str:
    """One line for a rung and its checks, printed when it is done, and one line per finding."""
    first = rows[0]
    name = escape(f"{first.operator}.{first.rung}")
    found = sum(len(r.findings) for r in rows)
    said = _ran(first) + ": " + ", ".join(r.check for r in rows)
    if found:
        outcome, style, said = "found", "bold red", f"{found} findings in {said}"
    elif first.calls:
        outcome, style = "clean", "green"
    else:
        outcome, style = "unchecked", "dim"
        said = next(iter(first.left_out), "no call can run on this machine")
    lines = [f"[{style}]{outcome:<11}[/] [bold]{name:<34}[/] {escape(said)}"]
    for r in rows:
        lines += [f"    {r.check}: {escape(f)}" for f in r.findings[:MOST]]
        if len(r.findings) > MOST:
            lines.append(f"    {r.check}: and {len(r.findings) - MOST} more")
    return "\n".join(lines)


def summary(result: Checked) -> str:
    """The totals over all rungs."""
    rungs: dict[tuple[str, str], list[Watched]] = {}
    for row in result.rows:
        rungs.setdefault((row.operator, row.rung), []).append(row)
    counts = Counter(
        "with findings" if any(r.findings for r in rows)
        else "clean" if any(r.calls for r in rows) else "unchecked"
        for rows in rungs.values()
    )  # fmt: skip
    calls = sum(rows[0].calls for rows in rungs.values())
    said = ", ".join(f"{counts[k]} {k}" for k in ("with findings", "clean", "unchecked"))
    return f"{len(rungs)} rungs: {said}; {calls} calls were checked"


def _ran(row: Watched) -> str:
    schedules = f", {row.schedules} schedules" if row.schedules else ""
    return f"{row.calls} calls{schedules} under {row.under}"
