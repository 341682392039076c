"""Pictures of the data movement of CUDA C++ rungs, drawn from a trace in the emulator, and of
Triton rungs (movement_triton.py), and the steps of a ladder around them: what the pages of MODELS
show.

    python -m tools.movement            # write the pictures and counters whose source has changed
    python -m tools.movement --check    # exit 1 where one is missing or of another source

Needs a C++ compiler and no GPU. docs/movement/facts.json keeps the source hash and the counters of
each rung; `tools.readme_tables` writes the pages from it (table:steps).
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import Case, Ladder, Rung, case
from kernelwright.dispatch import ladder, launcher, source_hash, specs_of, unsupported
from kernelwright.emulator.trace import Request, Trace, Traced
from kernelwright.support import svg
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import SECTOR, Dissection
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record
from kernelwright.workbench.report import strips
from kernelwright.workbench.report.case_tables import headline
from kernelwright.workbench.report.strips import banks as _banks
from kernelwright.workbench.report.strips import sectors as _sectors
from kernelwright.workbench.sanitize.tool_runner import apart
from kernelwright.workbench.verify.candidate import map_tensors
from tools import movement_triton

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "movement"
FACTS = FOLDER / "facts.json"
F32 = torch.float32
#: The pages with pictures, and the cases of each: a rung is drawn on the first that it supports.
MODELS = {
    "softmax": (
        *(case(shape, F32, dim=-1) for shape in ((32, 64), (8, 1024), (2, 4096))),
        case((2, 64, 128), F32, dim=-2),
    ),
    "sum": (
        case((2048,), F32, dim=None),
        case((8, 1024), F32, dim=(-1,)),
        case((256, 64), F32, dim=(0,)),
    ),
    "layer_norm": tuple(case(shape, F32, eps=1e-5) for shape in ((8, 1024), (2, 4096))),
    "gelu": (case((8192,), F32, approximate="none"),),
}
USED, TRAFFIC = "percent of the touched sectors' bytes used", "traffic over the least"
PROGRAMS, ACCESSED = "programs", "accessed bytes over the least traffic"
ALIKE = 3  # requests of one line that are drawn
LINES = 10  # lines of a diff that a page shows
FRAME = re.compile(r"\s*(template|__global__|#pragma|\w+_(fwd|bwd)_)|\s{15}")  # signatures


@dataclass(frozen=True)
class Facts:
    """A rung on the case of its picture. `counters`: of the call, by name."""

    hash: str
    case: str
    counters: dict[str, float]


def rungs(operator: str) -> list[tuple[Ladder, Rung]]:
    """The CUDA C++ rungs of a model, which have a picture and are a sequence of changes."""
    lad = ladder(operator)
    return [(lad, r) for r in lad.rungs if r.backend == "cuda"]


def triton_rungs(operator: str) -> list[tuple[Ladder, Rung]]:
    """The Triton rungs of a model, which have a picture too."""
    lad = ladder(operator)
    return [(lad, r) for r in lad.rungs if r.backend == "triton"]


def load() -> dict[str, Facts]:
    """Recorded facts by "softmax.cuda_warp"."""
    if not FACTS.exists():
        return {}
    return {k: Facts(**v) for k, v in json.loads(FACTS.read_text(encoding="utf-8")).items()}


def stale() -> Iterator[tuple[Ladder, Rung]]:
    """Rungs without a picture of their current source."""
    facts_by_rung = load()
    for operator in MODELS:
        for lad, rung in (*rungs(operator), *triton_rungs(operator)):
            facts = facts_by_rung.get(f"{operator}.{rung.name}")
            path = FOLDER / f"{operator}.{rung.name}.svg"
            if facts is None or facts.hash != source_hash(lad, rung) or not path.exists():
                yield lad, rung


def case_of(lad: Ladder, rung: Rung) -> Case:
    """The case of a rung's picture.

    Raises:
        ValueError: the rung supports none of the model's cases.
    """
    for at in MODELS[lad.name]:
        args = lad.operator.with_defaults(lad.operator.inputs(at, "cpu"))
        specs, _ = lad.operator.normalise(specs_of(args))
        if unsupported(rung, specs, torch.device("cpu")) is None:
            return at
    raise ValueError(f"{lad.name}.{rung.name} supports no case of MODELS")


def traced(lad: Ladder, rung: Rung, at: Case) -> Traced:
    """The trace of a call's first launch."""
    args = lad.operator.with_defaults(lad.operator.inputs(at, "cpu"))
    args = map_tensors(args, lambda t: apart(t, "cpu"))
    look = Trace()
    with look.mode():
        run = launcher(lad, args, rung.name, rung.configs[0])
    return look.call(run, args)[0]


def counters(dissection: Dissection) -> dict[str, float]:
    """What a call cost, by the names that the pages use."""
    accesses = [a for launch in dissection.launches for a in launch.accesses]
    requests = sum(a.requests for a in accesses if a.sectors)
    branches = [b for launch in dissection.launches for b in launch.branches]
    out = {
        "launches": len(dissection.launches),
        "active lanes": round(dissection.active, 1),
        "divergent branches": sum(b.parted for b in branches),
        "passes through shared memory": dissection.passes,
        "bank conflicts": dissection.conflicts,
        "global memory requests": requests,
        TRAFFIC: round(dissection.sectors * SECTOR / dissection.cost, 2),
    }
    out[USED] = round(100 * dissection.asked / (dissection.sectors * SECTOR), 1)
    return out


def accessed(lad: Ladder, at: Case, trace: movement_triton.Traced) -> dict[str, float]:
    """The counters of a Triton rung: programs of its first launch, and what they access."""
    args = lad.operator.with_defaults(lad.operator.inputs(at, "cpu"))
    least = lad.operator.cost(**specs_of(args)).bytes
    return {PROGRAMS: trace.programs, ACCESSED: round(trace.bytes / least, 2)}


# ---- the picture


def picture(name: str, at: str, trace: Traced) -> str:
    """The requests of a warp from top to bottom, as an SVG that stands alone."""
    parts, y = strips.head(
        f"{name} on {at}",
        (
            "The memory requests of the first warp, in order. A cell is a part of a tensor, or one "
            "of 32 banks of shared memory; it is filled as far as the lanes access it. Blue: "
            "loads. Brown: stores.",
        ),
    )
    for requests in _groups(trace.requests):
        for request in requests[:ALIKE]:
            strip = _strip(request, trace)
            parts += strips.drawn(strip, y)
            y += strip.high
        if len(requests) > ALIKE:
            more = f"and {len(requests) - ALIKE:,} more"
            parts.append(svg.text(0, y + 11, more, "soft"))
            y += strips.TEXT + strips.GAP
    return strips.alone(parts, y, f"data movement of {name}")


def _groups(requests: tuple[Request, ...]) -> list[list[Request]]:
    """Requests of one line and tensor, in the order of their first."""
    groups: dict[tuple[Any, ...], list[Request]] = {}
    for r in requests:
        groups.setdefault((r.place.line, r.kind, r.memory), []).append(r)
    return list(groups.values())


def _strip(r: Request, trace: Traced) -> strips.Strip:
    cells, words = _banks(r) if r.memory == "shared" else _sectors(r, trace.sizes[r.memory])
    label = f"{r.place.line or ''} {r.kind} {r.memory}".strip()
    return strips.Strip(label, cells, words, r.kind)


# ---- the steps of a page


def section(operator: str, timings: list[Record]) -> str:
    """A page's part on each CUDA C++ rung: its picture, the lines that changed, the counter that
    moved, the time, and the next bottleneck; then the same of each Triton rung, without a diff."""
    facts = load()
    table = headline(ladder(operator), timings)
    out: list[str] = []
    before: Rung | None = None
    for lad, rung in rungs(operator):
        name = f"{operator}.{rung.name}"
        mine = facts.get(name)
        if mine is None:
            raise ValueError(f"{name}: python -m tools.movement draws its picture")
        text = (lad.folder / rung.sources[0]).read_text(encoding="utf-8")
        out += [f"### `{rung.name}`: {rung.idea}", ""]
        says = f"Memory requests of the first warp of {name} on {mine.case}"
        out += [f"![{says}](../../../../../docs/movement/{name}.svg)", ""]
        if before is not None:
            old = (lad.folder / before.sources[0]).read_text(encoding="utf-8")
            out += [*_changes(before.name, old, text), ""]
        rows = [f"- Counter: {_moved(before, mine, facts, operator)}"]
        rows.append(f"- Time: {_time(table, rung.name, before.name if before else '')}")
        rows.append(f"- Next bottleneck: {limit(text)}")
        out += [*rows, ""]
        before = rung
    for lad, rung in triton_rungs(operator):
        out += _triton(lad, rung, facts, table)
    return "\n".join(out)


def _triton(
    lad: Ladder, rung: Rung, facts: dict[str, Facts], table: metrics.Table | None
) -> list[str]:
    name = f"{lad.name}.{rung.name}"
    mine = facts[name]
    says = f"Loads and stores of the first programs of {name} on {mine.case}"
    moved = f"{_number(mine.counters[PROGRAMS])} program{'s' * (mine.counters[PROGRAMS] > 1)}"
    moved += f" access {_number(mine.counters[ACCESSED])} times the minimum traffic"
    text = lad.module_of(rung).read_text(encoding="utf-8")
    return [
        f"### `{rung.name}`: {rung.idea}",
        "",
        f"![{says}](../../../../../docs/movement/{name}.svg)",
        "",
        f"- Counter: on `{mine.case}`, {moved}.",
        f"- Time: {_time(table, rung.name, '')}",
        f"- Next bottleneck: {limit(text)}",
        "",
    ]


def _moved(before: Rung | None, mine: Facts, facts: dict[str, Facts], operator: str) -> str:
    """The counter that changed most since the rung before, on the picture's case."""
    was = facts.get(f"{operator}.{before.name}") if before else None
    if was is None or was.case != mine.case:
        c = mine.counters
        said = (
            f"{_number(c['active lanes'])} of 32 lanes active; {_number(c[USED])}% of the bytes of"
        )
        said += f" the touched sectors used; {_number(c[TRAFFIC])} times the minimum traffic"
        return f"on `{mine.case}`, {said}."
    name = max(mine.counters, key=lambda n: _change(was.counters.get(n, 0.0), mine.counters[n]))
    old, new = was.counters.get(name, 0.0), mine.counters[name]
    if old == new:
        return f"none of the emulator's counters changes on `{mine.case}`."
    return f"{name}, {_number(old)} before, {_number(new)} now, on `{mine.case}`."


def _change(old: float, new: float) -> float:
    """How far apart two counts are, as a factor; a small count more or less does not matter."""
    low, high = sorted((old + 1, new + 1))
    return high / low


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0")


def _time(table: metrics.Table | None, name: str, before: str) -> str:
    rows = {r.name: r for r in table.rows} if table else {}
    row = rows.get(name)
    if table is None or row is None or not row.timed:
        return f"{row.status if row else 'no record'}."
    said = f"{metrics.microseconds(row.cold)} on `{table.case}` on {REFERENCE_MACHINE}"
    if row.of_roof:
        said += f", {metrics.percent(row.of_roof)} of the roof"
    was = rows.get(before)
    if was and was.timed and was.cold and row.cold:
        said += f"; {metrics.microseconds(was.cold)} before"
    return f"{said}."


def limit(source: str) -> str:
    """The limit that a rung's header states: comments of C++, or a docstring."""
    header = re.match(r"(?:\s*//.*\n)+", source) or re.match(r'"""(.*?)"""', source, re.S)
    lines = [line.strip().strip('/"').strip() for line in header[0].splitlines()] if header else []
    text = " ".join(line or "\n" for line in lines)
    match = re.search(r"Limit: ([^\n]*?)(?= [A-Z]\w+(?: `[^`]*`)?: | *\n|$)", text)
    if not match:
        raise ValueError("a rung's header has no Limit")
    return match[1]


def _changes(before: str, old: str, new: str) -> list[str]:
    """The changed lines of code as a diff; of many, the first that were added."""
    rows = list(difflib.unified_diff(_code(old), _code(new), lineterm="", n=0))[2:]
    rows = [r for r in rows if r[:2] != "@@" and r[1:].strip() not in ("", "{", "}")]
    shown = rows
    if len(rows) > LINES:
        shown = [r for r in rows if r[0] == "+" and not FRAME.match(r[1:])][:LINES]
    note = f"Changed lines since `{before}`"
    note += f" ({len(shown)} of {len(rows)}):" if len(rows) > len(shown) else ":"
    return [note, "", "```diff", *shown, "```"]


def _code(source: str) -> list[str]:
    """A kernel without comments, includes and empty lines."""
    return [
        line
        for line in source.splitlines()
        if line.strip() and not re.match(r"\s*//|#include", line)
    ]


def main() -> None:
    missing = list(stale())
    if "--check" in sys.argv[1:]:
        for lad, rung in missing:
            print(f"{lad.name}.{rung.name}: no picture of its current source")
        if missing:
            sys.exit("python -m tools.movement draws them")
        return
    facts = load()
    FOLDER.mkdir(exist_ok=True)
    for lad, rung in missing:
        name = f"{lad.name}.{rung.name}"
        at = case_of(lad, rung)
        path = FOLDER / f"{name}.svg"
        if rung.backend == "triton":
            look = movement_triton.traced(lad, rung, at)
            drawn, values = movement_triton.picture(name, at.id, look), accessed(lad, at, look)
        else:
            drawn = picture(name, at.id, traced(lad, rung, at))
            values = counters(dissect.dissect(lad, rung, at))
        path.write_text(drawn, encoding="utf-8")
        facts[name] = Facts(source_hash(lad, rung), at.id, values)
        print(path.relative_to(ROOT), flush=True)
    kept = {f"{op}.{r.name}" for op in MODELS for _, r in (*rungs(op), *triton_rungs(op))}
    text = {k: vars(facts[k]) for k in sorted(facts) if k in kept}
    FACTS.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
