"""The report: the records as one self-contained page that opens offline.

The first screen is drawn by templates/report.js from a table of figures. An operator's section is
compressed, and expanded when it is opened, so that the page and its document tree stay small.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kernelwright.dispatch import ladders
from kernelwright.support import durable
from kernelwright.workbench.bench import fusion
from kernelwright.workbench.records import metrics, records
from kernelwright.workbench.records.records import Record

from . import charts, origin, overview, sections, svg

STREAM = re.compile(r"roof:r\dw\d")  # DRAM's roofs, not those of caches or arithmetic
TEMPLATES = Path(__file__).with_name("templates")
BACKENDS = {
    "torch": "PyTorch",
    "inductor": "torch.compile",
    "triton": "Triton",
    "cuda": "CUDA C++",
    "numba": "Numba",
    "peer": "another library",
}


@dataclass(frozen=True)
class Section:
    """A part of the page that is expanded when it is opened."""

    anchor: str
    title: str
    about: str
    packed: str


def html(measured: Iterable[Record] | None = None) -> str:
    """The page, from the given records or from all records."""
    measured = list(records.load() if measured is None else measured)
    here = origin.runs_here(measured)
    machines = overview.machines(measured, here)
    style = _template_text("charts.css") + _template_text("report.css")
    script = _template_text("report.js")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = _operators(environment, machines, measured, here)
    about = [_machine(m, measured, here) for m in machines]
    text = environment.get_template("machines.html").render(machines=about, key=_key)
    return environment.get_template("page.html").render(
        machines=machines,
        sections=parts,
        machines_packed=packed(text),
        backends=BACKENDS,
        key=_key,
        style=Markup(style),
        script=Markup(script),
        style_hash=content_hash(style),
        script_hash=content_hash(script),
        data=Markup(embedded(_first_screen(machines, measured, here))),
    )


def write(path: Path, measured: Iterable[Record] | None = None) -> int:
    """Write the page; returns its size in bytes."""
    text = html(measured)
    durable.write_text(path, text)
    return len(text.encode())


def embedded(value: Any) -> str:
    """JSON escaped for use inside a script element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(text: str) -> str:
    """A text compressed for templates/report.js, which expands it."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    """The inverse of `packed`."""
    return zlib.decompress(base64.b64decode(text)).decode()


def _operators(
    environment: Environment, machines: list[str], measured: list[Record], here: frozenset[str]
) -> list[Section]:
    """A section for each ladder."""
    template = environment.get_template("section.html")
    by_operator: dict[str, list[Record]] = {}
    for r in measured:
        by_operator.setdefault(r.operator, []).append(r)
    seen: dict[tuple[str, str], str] = {}
    out: list[Section] = []
    for lad in sorted(ladders(), key=lambda x: x.name):
        view = sections.view(lad, machines, by_operator.get(lad.name, []), here, seen)
        saved = _fusion(measured, machines) if lad.name == "gelu" else []
        data = Markup(embedded(sections.figures(view)))
        text = template.render(view=view, fusion=saved, f=metrics, key=_key, data=data)
        about = f"{len(lad.rungs)} rungs, {lad.operator.schema}"
        out.append(Section(view.anchor, lad.name, about, packed(text)))
    return out


def _first_screen(
    machines: list[str], measured: list[Record], here: frozenset[str]
) -> dict[str, Any]:
    """The data of report.js."""
    of: dict[tuple[str, str], list[Record]] = {}
    for r in measured:
        of.setdefault((r.machine, r.operator), []).append(r)
    rows: dict[str, dict[str, Any]] = {}
    for machine in machines:
        for lad in ladders():
            mine = of.get((machine, lad.name), [])
            if cases := overview.rows(lad, machine, mine, here):
                rows.setdefault(machine, {})[lad.name] = cases
    names = {
        lad.name: {"anchor": sections.anchor(lad), "family": lad.package.split(".")[-2]}
        for lad in ladders()
    }
    timed = [m for m in machines if m in rows]
    return {
        "machines": timed,
        "opening": overview.opening(timed),
        "operators": names,
        "rows": rows,
    }


def _fusion(measured: list[Record], machines: list[str]) -> list[dict[str, Any]]:
    """The savings of fusion: counts for each variant, and its time on each machine with a
    record."""
    times = {(r.case, r.rung, r.machine): r for r in measured if r.operator == "fusion" and r.cold}
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


def _machine(machine: str, measured: list[Record], here: frozenset[str]) -> dict[str, Any]:
    """A machine's part of the page: the environment of its newest run, and its roofline."""
    mine = [r for r in measured if r.machine == machine]
    points: list[charts.Point] = []
    rows: list[metrics.Row] = []
    for lad in ladders():
        table = sections.headline(lad, machine, [r for r in mine if r.operator == lad.name])
        for row in table.timed if table else ():
            record = row.record
            if table and record and row.cold and record.flops and record.bytes:
                name = f"{lad.name}.{row.name.removeprefix('peer:')} {table.case}"
                gflops = record.flops / row.cold / 1e3
                intensity = record.flops / record.bytes
                local = record.run in here
                points.append(charts.Point(lad.name, name, row.backend, intensity, gflops, local))
                rows.append(row)
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
        if isinstance(about, dict):  # also the CPU's name on a machine with a GPU
            facts[part] = str(about.get("name") or about.get("model"))
    caption = origin.caption(rows, here, machine)
    return {"name": machine, "facts": facts, "roofline": Markup(roofline), "caption": caption}


def _key(kind: str) -> Markup:
    return Markup(svg.key(kind))


def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """The hash of an inline style or script for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
