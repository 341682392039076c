"""The contents of an operator's section in the report: its ladder, times over size, counters and
sources."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from kernelwright.contract import H200, Gpu, Ladder, Rung
from kernelwright.dispatch import proven_on
from kernelwright.machine import gpu_of, here, slug
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.inspection import specs_of
from kernelwright.workbench.listing import served
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.metrics import Table
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record

from . import case_tables, charts, counters, origin

#: The color class of each line of a chart over sizes.
KINDS = {"native": "torch", "compiled": "inductor", "best rung written here": "best"}
PEERS = ("peer", "peer2", "peer3")


@dataclass(frozen=True)
class CaseView:
    table: Table
    chart: Markup
    caption: str
    figures: dict[str, Any]  # the table's data
    shown: bool  # whether it is shown when the section is opened


@dataclass(frozen=True)
class SizeView:
    what: str  # dtype and arguments
    caption: str
    series: list[charts.Series]
    charts: list[Markup]  # time, rate


@dataclass(frozen=True)
class MachineView:
    name: str
    cases: list[CaseView]
    over_size: list[SizeView]


@dataclass(frozen=True)
class DiffLine:
    kind: str  # "add", "del", "hunk" or ""
    parts: tuple[tuple[str, bool], ...]  # texts, and whether each is a changed part of the line


@dataclass(frozen=True)
class RungView:
    rung: Rung
    proven: tuple[str, ...]
    path: str
    code: str
    below: str  # the rung that `diff` starts from
    diff: list[DiffLine]
    same_as: str  # anchor of the earlier rung that already shows this file
    notes: dict[int, dissect.Note]  # shown in the margin of the code
    dissected: tuple[str, ...]  # the calls to which the notes belong


@dataclass(frozen=True)
class LadderView:
    ladder: Ladder
    machines: list[MachineView]
    rungs: list[RungView]
    counters: list[counters.View]

    @property
    def anchor(self) -> str:
        return anchor(self.ladder)


def anchor(lad: Ladder) -> str:
    return lad.name.replace(".", "-")


def view(
    lad: Ladder,
    machines: Iterable[str],
    measured: Iterable[Record],
    here: frozenset[str],
    seen: dict[tuple[str, str], str],
) -> LadderView:
    """The contents of a ladder's section.

    Args:
        here: the runs measured here.
        seen: the anchors of sources shown in earlier sections; this section's are added.
    """
    mine = [r for r in measured if r.operator == lad.name]
    views = [_on_machine(lad, m, mine, here) for m in machines]
    views = [v for v in views if v.cases] or [_unmeasured(lad)]
    return LadderView(lad, views, _rungs(lad, seen), counters.views(lad))


def headline(lad: Ladder, machine: str, measured: list[Record]) -> Table | None:
    """The case that represents a ladder; on the reference machine, the same as in the READMEs."""
    if machine == REFERENCE_MACHINE:
        return case_tables.headline(lad, measured) or metrics.headline(lad, machine, measured)
    return metrics.headline(lad, machine, measured)


def dispatched(lad: Ladder, machine: str, case_id: str) -> str:
    """The rung dispatched for a case on a machine; "" if it is unknown."""
    gpu: Gpu | None = H200 if machine == REFERENCE_MACHINE else None
    if machine == slug(here()):
        gpu = gpu_of(here())
    if gpu is None:
        return "native" if machine.startswith("cpu-") else ""
    case = metrics.case_named(lad, case_id)
    return served(lad, gpu, specs_of(lad, case))[0].name if case else ""


def _on_machine(
    lad: Ladder, machine: str, measured: list[Record], here: frozenset[str]
) -> MachineView:
    first = headline(lad, machine, measured)
    timed = [
        metrics.table(lad, machine, c, measured)
        for c in metrics.timed_cases(lad, machine, measured)
    ]
    cases = [_case(t, here, first is not None and t.case == first.case) for t in timed]
    return MachineView(machine, cases, _over_size(lad, machine, timed, here))


def _case(t: Table, here: frozenset[str], first: bool) -> CaseView:
    rung = dispatched(t.ladder, t.machine, t.case)
    label = f", {t.label}" if t.label else ""
    return CaseView(
        t,
        Markup(charts.ladder(t, dispatched=rung, here=here)),
        f"{t.case}{label}; {origin.caption(t.rows, here, t.machine)}",
        _figures(t, here, rung),
        first,
    )


def _figures(t: Table, here: frozenset[str], rung: str) -> dict[str, Any]:
    """A table as data: without empty values, and with the fields that only the report adds."""
    as_data = metrics.as_json(t)
    for row, data in zip(t.rows, as_data["rows"], strict=True):
        data["source"] = origin.of(row, here)
        data["rate"] = row.rate
        data["verified"] = row.verified.outcome if row.verified else "pass" if row.timed else ""
    as_data["rows"] = [
        {k: v for k, v in r.items() if v not in (None, "", {})} for r in as_data["rows"]
    ]
    return {**as_data, "dispatched": rung}


def _unmeasured(lad: Ladder) -> MachineView:
    """A ladder without records: every rung is shown as not measured."""
    case = next((c.id for c in lad.operator.cases if c.use == "bench"), "")
    return MachineView("", [_case(metrics.table(lad, "", case, ()), frozenset(), True)], [])


def _over_size(
    lad: Ladder, machine: str, tables: list[Table], here: frozenset[str]
) -> list[SizeView]:
    """Our fastest rung, PyTorch's and the peers over the bytes moved: two charts for each dtype and
    set of arguments."""
    alike: dict[str, list[Table]] = {}
    for t in tables:
        case = metrics.case_named(lad, t.case)
        if case:
            label = [str(case.dtype).removeprefix("torch.")]
            label += [f"{k}={v}" for k, v in case.params]
            alike.setdefault(", ".join(label), []).append(t)
    out: list[SizeView] = []
    for what, group in alike.items():
        lines = _lines(group)
        if len(charts.sizes(t.bytes for t in group)) < 2 or not lines:
            continue
        peers = sorted(n for n in lines if n not in KINDS)
        kinds = {**KINDS, **dict(zip(peers, PEERS, strict=False))}
        series = [
            charts.Series(
                name.removeprefix("peer:"),
                kinds.get(name, "peer"),
                tuple((size, row.cold or 0.0) for size, row in points),
                tuple(origin.of(row, here) == origin.HERE for _, row in points),
            )
            for name, points in lines.items()
        ]
        pair = [
            charts.time_over_size(series, name=lad.name),
            charts.rate_over_size(series, name=lad.name),
        ]
        rows = [row for points in lines.values() for _, row in points]
        caption = origin.caption(rows, here, machine)
        out.append(SizeView(what, caption, series, [Markup(c) for c in pair]))
    return out


def _lines(group: list[Table]) -> dict[str, list[tuple[int, metrics.Row]]]:
    """The points of each line, (bytes, row)."""
    lines: dict[str, list[tuple[int, metrics.Row]]] = {}
    for t in group:
        rows = [(r.name, r) for r in t.timed if r.rung is None or r.name in metrics.THEIRS]
        if t.ours:
            rows.append(("best rung written here", t.ours))
        for name, row in rows:
            lines.setdefault(name, []).append((t.bytes, row))
    return lines


def _rungs(lad: Ladder, seen: dict[tuple[str, str], str]) -> list[RungView]:
    """Each rung with its code and the diff to the nearest rung below in the same language."""
    out: list[RungView] = []
    below: dict[str, tuple[str, str]] = {}
    for rung in lad.rungs:
        path, code = source(lad, rung)
        mine = f"{anchor(lad)}-{rung.name}"
        same = seen.setdefault((lad.package, code), mine)
        language = rung.backend if rung.is_gpu else "torch"
        lower, text = below.get(language, ("", ""))
        changed = _diff(text, code) if lower and text != code and same == mine else []
        below[language] = rung.name, code
        proven = proven_on(lad, rung) if rung.is_gpu else ()
        notes, calls = dissect.notes(path) if rung.backend == "cuda" else ({}, ())
        same_as = "" if same == mine else same
        out.append(RungView(rung, proven, path.name, code, lower, changed, same_as, notes, calls))
    return out


def source(lad: Ladder, rung: Rung) -> tuple[Path, str]:
    """(file, text) of a rung's source: its .cu, its module, or its function."""
    if rung.sources:
        path = lad.folder / rung.sources[0]
        return path, path.read_text(encoding="utf-8")
    path, function = lad.module_of(rung), rung.entry.split(":")[1]
    text = path.read_text(encoding="utf-8")
    if rung.is_gpu:
        return path, text
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return path, (ast.get_source_segment(text, node) or "") + "\n"
    return path, text


def _diff(old: str, new: str) -> list[DiffLine]:
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    rows = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]
    out: list[DiffLine] = []
    removed: list[str] = []
    for i, row in enumerate(rows):
        kind = kinds.get(row[:1], "")
        if kind == "del":
            removed.append(row)
        if kind != "add":
            removed = removed if kind == "del" else []
            partner = _partner(rows, i) if kind == "del" else None
        else:
            partner = removed.pop(0) if removed else None
        out.append(DiffLine(kind, _changed(row, partner)))
    return out


def _partner(rows: list[str], i: int) -> str | None:
    """The added line that corresponds to a removed one: the one with the same position among the
    following added lines as the removed line has among its neighbors."""
    first = i
    while first and rows[first - 1][:1] == "-":
        first -= 1
    last = i
    while last < len(rows) and rows[last][:1] == "-":
        last += 1
    at = last + i - first
    return rows[at] if at < len(rows) and all(r[:1] == "+" for r in rows[last : at + 1]) else None


def _changed(row: str, partner: str | None) -> tuple[tuple[str, bool], ...]:
    """The parts of a line, and for each whether it is missing in its partner."""
    if partner is None:
        return ((row, False),)
    matcher = difflib.SequenceMatcher(None, row[1:], partner[1:], autojunk=False)
    if matcher.quick_ratio() < 0.5 or matcher.ratio() < 0.5:
        return ((row, False),)
    parts: list[tuple[str, bool]] = [(row[:1], False)]
    for tag, low, high, _, _ in matcher.get_opcodes():
        if high > low:
            parts.append((row[1:][low:high], tag != "equal"))
    return tuple(parts)


def figures(view: LadderView) -> list[dict[str, Any]]:
    """The data of a section's tables, in the order of its machines and cases."""
    return [case.figures for machine in view.machines for case in machine.cases]
