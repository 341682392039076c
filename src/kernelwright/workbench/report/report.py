"""The report: the records as one self-contained page that opens offline."""

from __future__ import annotations

import ast
import base64
import difflib
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kernelwright.contract import Ladder, Rung
from kernelwright.dispatch import ladders, proven_on
from kernelwright.workbench.bench import fusion
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.records import metrics, records
from kernelwright.workbench.records.metrics import Table
from kernelwright.workbench.records.records import Record

from . import charts, shown

STREAM = re.compile(r"roof:r\dw\d")  # DRAM's roofs, not those of caches or arithmetic
TEMPLATES = Path(__file__).with_name("templates")


def html(found: Iterable[Record] | None = None) -> str:
    """The page, from the given records or from all records."""
    found = list(records.load() if found is None else found)
    machines = sorted({r.machine for r in found}, key=lambda m: (m.startswith("cpu"), m))
    subjects = _subjects(found, machines)
    style = _template_text("charts.css") + _template_text("report.css")
    script = _template_text("report.js")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html").render(
        subjects=subjects,
        machines=[_machine(m, found) for m in machines],
        overview=_overview(found, machines, subjects),
        fusion=_fusion(found, machines),
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=Markup(embedded(_data(subjects))),
        f=metrics,
    )


def write(path: Path, found: Iterable[Record] | None = None) -> int:
    """Write the page; returns its size in bytes."""
    text = html(found)
    path.write_text(text, encoding="utf-8")
    return len(text.encode())


def embedded(value: Any) -> str:
    """JSON escaped for use inside a script element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@dataclass(frozen=True)
class CaseView:
    table: Table
    chart: Markup
    shown: bool  # when the page opens


@dataclass(frozen=True)
class SizeView:
    what: str  # dtype and arguments
    series: list[charts.Series]
    charts: list[Markup]  # time, rate


@dataclass(frozen=True)
class MachineView:
    name: str
    cases: list[CaseView]
    over_size: list[SizeView]


@dataclass(frozen=True)
class RungView:
    rung: Rung
    proven: tuple[str, ...]
    path: str
    code: str
    below: str  # the rung that `diff` starts from
    diff: list[tuple[str, str]]  # ("add" | "del" | "hunk" | "", line)
    same_as: str  # anchor of the rung that showed this file already
    notes: dict[int, dissect.Note]  # beside the code's lines
    dissected: tuple[str, ...]  # the calls that the notes are of


@dataclass(frozen=True)
class LadderView:
    ladder: Ladder
    machines: list[MachineView]
    rungs: list[RungView]

    @property
    def anchor(self) -> str:
        return self.ladder.name.replace(".", "-")


Subjects = list[tuple[str, list[LadderView]]]


def _subjects(found: list[Record], machines: list[str]) -> Subjects:
    """Ladders by subject, the longest first; each subject's forward before its backward."""
    subjects: dict[str, list[LadderView]] = {}
    shown: dict[tuple[str, str], str] = {}
    for ladder in ladders():
        views = [_on_machine(ladder, m, found) for m in machines]
        views = [v for v in views if v.cases] or [_unmeasured(ladder)]
        view = LadderView(ladder, views, _rungs(ladder, shown))
        subjects.setdefault(ladder.package.rsplit(".", 1)[-1], []).append(view)
    return sorted(subjects.items(), key=lambda s: -len(s[1][0].rungs))


def _on_machine(ladder: Ladder, machine: str, found: list[Record]) -> MachineView:
    found = [r for r in found if r.operator == ladder.name]
    first = _headline(ladder, machine, found) or metrics.headline(ladder, machine, found)
    timed = [
        metrics.table(ladder, machine, c, found)
        for c in metrics.timed_cases(ladder, machine, found)
    ]
    cases = [
        CaseView(t, Markup(charts.ladder(t)), first is not None and t.case == first.case)
        for t in timed
    ]
    return MachineView(machine, cases, _over_size(ladder, timed))


def _headline(ladder: Ladder, machine: str, found: list[Record]) -> Table | None:
    """The case that represents a ladder; on the reference machine, the same as in the READMEs."""
    found = [r for r in found if r.operator == ladder.name]
    if machine == records.REFERENCE_MACHINE:
        return shown.headline(ladder, found)
    return metrics.headline(ladder, machine, found)


def _unmeasured(ladder: Ladder) -> MachineView:
    """A ladder without records: every rung is shown as not measured."""
    case = next((c.id for c in ladder.operator.cases if c.use == "bench"), "")
    table = metrics.table(ladder, "", case, ())
    return MachineView("", [CaseView(table, Markup(charts.ladder(table)), True)], [])


def _over_size(ladder: Ladder, tables: list[Table]) -> list[SizeView]:
    """Our fastest rung, PyTorch's and the peers over the bytes moved: two charts for each dtype and
    set of arguments."""
    alike: dict[str, list[Table]] = {}
    for t in tables:
        case = metrics.case_named(ladder, t.case)
        if case:
            label = [str(case.dtype).removeprefix("torch.")]
            label += [f"{k}={v}" for k, v in case.params]
            alike.setdefault(", ".join(label), []).append(t)
    out: list[SizeView] = []
    for what, group in alike.items():
        points: dict[str, list[tuple[float, float]]] = {}
        for t in group:
            rows = [(r.name, r) for r in t.timed if r.rung is None or r.name in metrics.THEIRS]
            if t.ours:
                rows.append(("best rung written here", t.ours))
            for name, row in rows:
                points.setdefault(name, []).append((t.bytes, row.cold or 0.0))
        kinds = {"native": "torch", "compiled": "inductor", "best rung written here": "best"}
        peers = sorted(n for n in points if n not in kinds)
        kinds.update(zip(peers, ("peer", "peer2", "peer3"), strict=False))
        series = [
            charts.Series(n.removeprefix("peer:"), kinds.get(n, "peer"), tuple(p))
            for n, p in points.items()
        ]
        if len({t.bytes for t in group}) > 1 and series:
            pair = [
                charts.time_over_size(series, name=ladder.name),
                charts.rate_over_size(series, name=ladder.name),
            ]
            out.append(SizeView(what, series, [Markup(c) for c in pair]))
    return out


def _overview(found: list[Record], machines: list[str], subjects: Subjects) -> Markup:
    """The best rung of each ladder on the first machine, a GPU where there is one."""
    shown = [view.ladder for _, views in subjects for view in views]
    standing = [_headline(x, machines[0], found) for x in shown] if machines else []
    return Markup(charts.overview([t for t in standing if t]))


def _fusion(found: list[Record], machines: list[str]) -> list[dict[str, Any]]:
    """The savings of fusion: counts for each variant, and its time on each machine with a
    record."""
    times = {(r.case, r.rung, r.machine): r for r in found if r.operator == "fusion" and r.cold}
    return [
        {
            "row": row,
            "times": [
                (m, metrics.microseconds(records.median(times[row.example, row.way, m].cold)))
                for m in machines
                if (row.example, row.way, m) in times
            ],
        }
        for row in fusion.rows()
    ]


def _machine(machine: str, found: list[Record]) -> dict[str, Any]:
    """A machine's part of the page: the environment of its newest run, and its roofline."""
    mine = [r for r in found if r.machine == machine]
    points: list[charts.Point] = []
    for ladder in ladders():
        table = metrics.headline(ladder, machine, mine)
        for row in table.timed if table else ():
            record = row.record
            assert record and row.cold and table
            if record.flops and record.bytes:
                name = f"{ladder.name}.{row.name.removeprefix('peer:')} {table.case}"
                gflops = record.flops / row.cold / 1e3
                kind = row.backend
                intensity = record.flops / record.bytes
                points.append(charts.Point(ladder.name, name, kind, intensity, gflops))
    streams = [r.gbps for r in mine if STREAM.fullmatch(r.rung) and r.gbps]
    products = [r for r in mine if r.rung == "roof:matmul" and r.case.endswith("f32") and r.cold]
    compute = max((r.flops / records.median(r.cold) / 1e3 for r in products), default=None)
    roofline = (
        charts.roofline(points, memory=max(streams), compute=compute, machine=machine)
        if streams
        else ""
    )
    newest = max(records.runs(machine).values(), key=lambda r: r.get("when", ""), default={})
    facts = {k: v for k, v in newest.items() if isinstance(v, str) and k not in ("machine", "run")}
    for part in ("gpu", "cpu"):
        about = newest.get(part)
        if isinstance(about, dict):  # the CPU's name too where a GPU hides behind it
            facts[part] = str(about.get("name") or about.get("model"))
    return {"name": machine, "facts": facts, "roofline": Markup(roofline), "count": len(mine)}


def _rungs(ladder: Ladder, shown: dict[tuple[str, str], str]) -> list[RungView]:
    """Each rung with its code and the diff to the nearest rung below in the same language."""
    out: list[RungView] = []
    below: dict[str, tuple[str, str]] = {}
    for rung in ladder.rungs:
        path, code = source(ladder, rung)
        anchor = f"{ladder.name.replace('.', '-')}-{rung.name}"
        same = shown.setdefault((ladder.package, code), anchor)
        language = rung.backend if rung.is_gpu else "torch"
        lower, text = below.get(language, ("", ""))
        diff = _diff(text, code) if lower and text != code and same == anchor else []
        below[language] = rung.name, code
        same = "" if same == anchor else same
        proven = proven_on(ladder, rung) if rung.is_gpu else ()
        cuda = rung.backend == "cuda"
        notes, calls = dissect.notes(ladder.folder / path) if cuda else ({}, ())
        out.append(RungView(rung, proven, path, code, lower, diff, same, notes, calls))
    return out


def source(ladder: Ladder, rung: Rung) -> tuple[str, str]:
    """(file name, text) of a rung's source: its .cu, its module, or its function."""
    if rung.sources:
        path = ladder.folder / rung.sources[0]
        return path.name, path.read_text(encoding="utf-8")
    module, function = rung.entry.split(":")
    path = ladder.folder / f"{module}.py"
    text = path.read_text(encoding="utf-8")
    if rung.is_gpu:
        return path.name, text
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return path.name, (ast.get_source_segment(text, node) or "") + "\n"
    return path.name, text


def _diff(old: str, new: str) -> list[tuple[str, str]]:
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    rows = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]
    return [(kinds.get(row[:1], ""), row) for row in rows]


def _data(subjects: Subjects) -> list[dict[str, Any]]:
    """The data behind the charts, for drawing others."""
    return [
        metrics.as_json(case.table)
        for _, views in subjects
        for view in views
        for machine in view.machines
        for case in machine.cases
    ]


def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The hash of an inline style or script for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
