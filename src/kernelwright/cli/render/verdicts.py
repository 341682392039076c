"""A verdict on one screen of the terminal, and as an HTML page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.support import durable
from kernelwright.support.words import counted
from kernelwright.workbench.judge.checks import meaning
from kernelwright.workbench.judge.verdict import ARBITRARY, KINDS, CaseOutcome, Verdict
from kernelwright.workbench.records import metrics
from kernelwright.workbench.report import charts, report

from . import results
from .tables import Column, Table

STYLES = {"right": "bold green", "wrong": "bold red", "inconclusive": "bold yellow"}
SHOWN = 4  # further failing cases, and reasons of rejections


def verdict(v: Verdict) -> RenderableType:
    """A verdict for the terminal."""
    parts: list[RenderableType] = [
        Text(ARBITRARY, "dim"),
        Text(),
        Text.assemble((v.target, "bold"), (f"  judged as {v.operator} on {where(v)}", "dim")),
        Text(headline(v), STYLES[v.outcome]),
    ]
    if v.smallest:
        parts.append(_failure(v.smallest))
    parts += [Text(f"  {line}") for line in further(v)]
    parts += [Text(), _pairs(v)]
    for table in v.tables:
        parts += [Text(), results.ladder(table, {}, None, v.noise.get(table.case))]
    return Group(*parts)


def headline(v: Verdict) -> str:
    """The verdict in one line."""
    if v.outcome == "right":
        refused = f"; it rejects {len(v.refused)} more" if v.refused else ""
        unable = f"; {len(v.unable)} more cannot be judged here" if v.unable else ""
        edges = f"; it raises an exception on {len(v.edges)} without elements" if v.edges else ""
        return f"CORRECT on {_inputs(len(v.passed))}{refused}{unable}{edges}"
    if v.outcome == "wrong":
        right = f", correct on {len(v.passed)}" if v.passed else ""
        return f"WRONG on {len(v.failures)} of {_inputs(len(v.outcomes))}{right}"
    if v.unable and not v.passed:
        return f"CANNOT BE JUDGED HERE: {v.unable[0].why}"
    return f"INCONCLUSIVE, not enough evidence: {v.shortage}"


def _inputs(count: int) -> str:
    return counted(count, "input")


def where(v: Verdict) -> str:
    return "this GPU" if v.device == "cuda" else "a CPU: correctness and compiled code, no times"


def fault(o: CaseOutcome) -> str:
    """What is wrong on an input, or why it was not judged, in one line."""
    named = o.check and o.kind != "race"  # the description of a race includes the check
    return f"{o.check}: {o.why}" if named else o.why or o.layout


def _failure(o: CaseOutcome) -> Table:
    table = _two_columns()
    table.add("what is wrong", Text(fault(o), "red"))
    table.add("smallest failing input", Text(o.case, "bold"))
    if o.check:
        table.add("the check", Text(meaning(o.check), "dim"))
    for line in o.lines:
        table.add("", Text(line, "dim"))
    table.add("rerun", Text(o.command, "cyan"))
    return table


def _two_columns() -> Table:
    return Table(Column("what"), Column("words", wraps=True), head=False)


def further(v: Verdict) -> list[str]:
    """Further failures, rejected inputs, the distance to the error budget, and what did not run."""
    counts = Counter(KINDS[o.kind] for o in v.failures)
    kinds = ", ".join(f"{name} {_inputs(n)}" for name, n in counts.items())
    groups: dict[tuple[str, str], list[str]] = {}
    for o in v.failures:
        if o is not v.smallest:
            what = re.sub(r"[0-9.e+-]*[0-9]", "#", o.why)  # equal except for numbers
            groups.setdefault((o.check, what), []).append(o.case)
    said = [
        f"also {cases[0]}{f' and {len(cases) - 1} more' if cases[1:] else ''}: {_why(v, cases[0])}"
        for cases in list(groups.values())[:SHOWN]
    ]
    said = [f"failures by kind: {kinds}", *said] if len(counts) > 1 else said
    more = sum(len(cases) for cases in list(groups.values())[SHOWN:])
    said += [f"and {more} more"] if more else []
    for name, outcomes in (("edge cases", v.edges), ("cannot be judged here", v.unable)):
        for why, n in Counter(o.why for o in outcomes).most_common(SHOWN):
            said.append(f"{name}: {_inputs(n)}, {why}")
    said += _layout(v)
    reasons = Counter(o.why for o in v.refused)
    said += [f"rejects {_inputs(n)}: {why}" for why, n in reasons.most_common(SHOWN)]
    if v.worst and v.worst.worst and v.worst.worst.error and v.worst.worst.budget:
        error, budget = v.worst.worst.error, v.worst.worst.budget
        said.append(
            f"closest to its budget on {v.worst.case}: {error.worst:.2g} of {budget.worst:.2g} ulp"
        )
    said += [
        f"the kernel does not take {n}: judged with {n}={value}" for n, value in v.held.items()
    ]
    said += [f"not run: {_inputs(n)}, {why}" for why, n in v.left_out.items()]
    return said


def _layout(v: Verdict) -> list[str]:
    """Correct results whose strides differ from PyTorch's."""
    outcomes = [o for o in v.passed if o.layout]
    if not outcomes:
        return []
    return [
        f"layout: on {_inputs(len(outcomes))} (a note; --strict makes it a failure), "
        f"{outcomes[0].case}: {outcomes[0].layout}"
    ]


def _why(v: Verdict, case: str) -> str:
    return next(fault(o) for o in v.failures if o.case == case)


def pairs(v: Verdict) -> list[tuple[str, str]]:
    """Further facts: (name, text)."""
    properties = v.properties()
    if v.costs:
        c = v.costs
        properties.append(("launches", f"{c.launches} per call ({c.counted}), on {c.case}"))
        peak, host = "not measured: it needs a GPU", "not timed: it needs a GPU"
        if c.peak is not None:
            peak = f"{metrics.size(c.peak)} besides inputs and outputs, on {c.case}"
        if c.host_us is not None:
            host = f"{metrics.microseconds(c.host_us)} per call, on {c.timed}"
        elif v.device == "cuda":
            host = v.no_times or "not timed: see the tables"
        properties += [("memory", peak), ("host", host)]
        properties += [("savings", line) for line in c.saves(not v.not_captured)]
    elif v.no_costs:
        properties.append(("launches", v.no_costs))
    for k in v.kernels:
        properties.append((f"kernel {k['kernel']}", kernel(k)))
    if v.no_kernels:
        properties.append(("registers, occupancy", v.no_kernels))
    if v.no_times:
        properties.append(("times", v.no_times))
    return properties


def kernel(k: dict[str, Any]) -> str:
    """The resources that a kernel uses, in one line."""
    r, o, i = k["resources"], k["occupancy"], k["instructions"]
    spilled = r["spill_stores"] + r["spill_loads"]
    said = [
        f"{k['arch']}: {r['registers']} registers",
        f"{spilled} bytes spilled" if spilled else "no spills",
        f"{100 * o['fraction']:.0f}% occupancy ({o['limit']})",
    ]
    for name in ("loads", "stores"):
        widths = sorted((int(w), n) for w, n in i[f"global_{name}"].items())
        listed = ", ".join(f"{n} of {w} bits" for w, n in widths)
        said.append(f"{name} {listed or 'none'}")
    return "; ".join(said)


def _pairs(v: Verdict) -> Table:
    table = _two_columns()
    for name, words in pairs(v):
        table.add(Text(name, "dim"), words)
    return table


def html(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as a self-contained HTML page, in the report's style."""
    folder = report.TEMPLATES
    style = "".join((folder / f"{n}.css").read_text("utf-8") for n in ("charts", "report", "judge"))
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("judge.html").render(
        verdicts=verdicts,
        note=ARBITRARY,
        headline=headline,
        fault=fault,
        too_noisy=metrics.too_noisy,
        where=where,
        further=further,
        pairs=pairs,
        meaning=meaning,
        chart=lambda table: Markup(charts.ladder(table)),
        style=Markup(style),
        style_hash=report.content_hash(style),
        data=Markup(report.embedded([v.as_json() for v in verdicts])),
        f=metrics,
    )


def write(verdicts: Sequence[Verdict], path: Path) -> None:
    durable.write_text(path, html(verdicts))
