"""Regenerates the tables between markers in READMEs and docs, README's picture, and the source
hashes of rungs that an installed package uses.

    python -m tools.readme_tables           # write
    python -m tools.readme_tables --check   # exit 1 where something is not current

A marker names its table:

    <!-- table:operators -->            every operator, as means over its cases
    <!-- table:featured -->             the same for a few operators
    <!-- table:fusion -->               what one kernel saves compared with several
    <!-- table:fusion swiglu -->        the same for the examples whose name begins so
    <!-- table:patched -->              a Llama's training step with `kw.patch` and without
    <!-- table:triton -->               rungs that two versions of Triton compile alike
    <!-- table:host -->                 the host time of a call of a public function
    <!-- table:training -->             the results of training with each operator swapped in
    <!-- table:ladder softmax -->       a ladder on its headline case; also <!-- table:softmax -->
    <!-- table:ladder softmax CASE -->  a ladder on a case
    <!-- table:start softmax -->        how a page begins: its calls, their figures, and the ladder
                                        as a picture, docs/ladders/softmax.svg
    <!-- table:cases softmax -->        every timed case: our best rung beside torch and peers
    <!-- table:steps sum -->            per CUDA C++ rung: picture, changed lines, counter, time
    <!-- table:dissect sum -->          the cost of each CUDA C++ rung, from `dissect`
    <!-- table:counters sum -->         the same beside a GPU's counters
    <!-- table:attention -->            rates of attention's forward in one run
    ... <!-- /table -->
"""

from __future__ import annotations

import inspect
import json
import re
import statistics
import sys
import textwrap
from pathlib import Path

import torch
from benchmarks import patched, training

import kernelwright.ops.every
from kernelwright.contract import Ladder
from kernelwright.dispatch import data, ladder, ladders, proven_on
from kernelwright.dispatch.proof import HASHES, computed_hash
from kernelwright.ops import LADDERS
from kernelwright.support.settings import PACKAGE
from kernelwright.workbench.bench import fusion
from kernelwright.workbench.records import metrics, records
from kernelwright.workbench.records.metrics import (
    microseconds,
    percent,
    rate,
    size,
    times,
)
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record
from kernelwright.workbench.report import charts, overview, sections
from kernelwright.workbench.report.case_tables import current, headline
from kernelwright.workbench.scaffold.stub import stub
from tools import (
    attention_table,
    dissect_tables,
    machine_pictures,
    movement,
    training_picture,
    triton_versions,
)

ROOT = Path(__file__).resolve().parents[1]
OPS = Path(kernelwright.ops.__file__).parent
MARKED = re.compile(r"(<!-- table:([^>]+?) -->\n)(.*?)(<!-- /table -->)", re.S)
#: The operators that README shows.
FEATURED = (
    "softmax",
    "layer_norm",
    "rms_norm.backward",
    "cross_entropy",
    "linear_cross_entropy",
    "swiglu",
    "rope",
    "adamw",
)
PICTURES = ROOT / "docs" / "ladders"


def texts() -> dict[Path, str]:
    """Every generated file and its expected content."""
    timings = records.load(REFERENCE_MACHINE)
    out: dict[Path, str] = {}
    docs = sorted((ROOT / "docs").glob("*.md"))
    for path in (ROOT / "README.md", *docs, *sorted(OPS.glob("*/*/README.md"))):
        if path.exists():
            text = path.read_text(encoding="utf-8")
            out[path] = MARKED.sub(lambda m: f"{m[1]}{render(m[2], timings)}{m[4]}", text)
            for operator in re.findall(r"<!-- table:start (\S+) -->", text):
                if headline(ladder(operator), timings):
                    out[PICTURES / f"{operator}.svg"] = picture(timings, operator)
    if patched_step := patched.load(REFERENCE_MACHINE):
        out[ROOT / "docs" / "training_step.svg"] = training_picture.picture(patched_step)
    if trained := training.load(REFERENCE_MACHINE):
        out[ROOT / "docs" / "training.svg"] = _curves(trained)
    for name, drawn in machine_pictures.PICTURES.items():
        out[ROOT / "docs" / f"{name}.svg"] = drawn()
    hashes = {f"{x.name}.{r.name}": computed_hash(x, r) for x in ladders() for r in x.rungs}
    out[PACKAGE / "__init__.pyi"] = stub()
    out[HASHES] = json.dumps(hashes, indent=1, sort_keys=True) + "\n"
    return out


def render(name: str, timings: list[Record]) -> str:
    """The table that a marker names, as Markdown.

    Raises:
        ValueError: there is no such table.
    """
    kind, *rest = name.split()
    if kind == "operators" and not rest:
        return operators(timings)
    if kind == "featured" and not rest:
        return featured(timings)
    if kind == "fusion":
        return _fusion(timings, " ".join(rest))
    if kind == "patched" and not rest:
        return _patched(patched.load(REFERENCE_MACHINE))
    if kind == "training" and not rest:
        return _training(training.load(REFERENCE_MACHINE))
    if kind == "host" and not rest:
        return _host(timings)
    if kind == "triton" and not rest:
        return _triton()
    if kind == "attention" and not rest:
        return _attention()
    if not rest and kind in {x.name for x in ladders()}:
        return _ladder(timings, kind)
    if kind == "ladder" and rest:
        return _ladder(timings, *rest)
    if kind == "start" and len(rest) == 1:
        return _start(timings, rest[0])
    if kind == "cases" and len(rest) == 1:
        return _cases(timings, rest[0])
    if kind == "dissect" and len(rest) == 1:
        return _dissected(timings, rest[0])
    if kind == "steps" and len(rest) == 1:
        return movement.section(rest[0], timings)
    if kind == "counters" and len(rest) == 1:
        return _counters(rest[0])
    raise ValueError(
        f"table:{name}: there are table:operators, featured, fusion [EXAMPLE], host, triton, "
        "attention, patched, training, ladder OP [CASE], start OP, cases OP, dissect OP, "
        "counters OP, steps OP"
    )


def operators(timings: list[Record]) -> str:
    """Every ladder in a line: its rungs, and over all its timed cases the geometric means of its
    best rung written here against the roof, PyTorch and the best peer."""
    head = ["operator", "rungs", "proven", "timed cases", "of roof", "over torch", "over best peer"]
    rows = [head]
    for lad in ladders():
        best = [(t.ours, t) for t in current(lad, timings) if t.ours]
        gpu = [r for r in lad.rungs if r.is_gpu]
        proven = sum(bool(proven_on(lad, r)) for r in gpu)
        folder = (lad.folder).relative_to(ROOT).as_posix()
        rows.append(
            [
                f"[{lad.name}](../{folder})",
                str(len(lad.rungs)),
                f"{proven} of {len(gpu)}",
                str(len(best)) if best else "no record",
                *_means(lad, timings),
            ]
        )
    return _markdown(rows, "lrrrrrr")


def featured(timings: list[Record]) -> str:
    """README's few operators, in the columns that matter first."""
    rows = [["operator", "of roof", "over PyTorch", "over the best peer"]]
    for name in FEATURED:
        lad = ladder(name)
        folder = lad.folder.relative_to(ROOT).as_posix()
        rows.append([f"[{lad.name}]({folder})", *_means(lad, timings)])
    return _markdown(rows, "lrrr")


def _means(lad: Ladder, timings: list[Record]) -> list[str]:
    """Geometric means over the timed cases of the best rung written here: its share of the roof,
    its factor over PyTorch (n/a where PyTorch only emulates the operator) and over the best
    peer."""
    best = [(t.ours, t) for t in current(lad, timings) if t.ours]
    over_torch = times(_mean([overview.over_torch(lad, row, t) for row, t in best])) or "n/a"
    peers = [overview.over_peer(lad, row) for row, _ in best]
    of_roof = percent(_mean([row.of_roof for row, _ in best]))
    return [of_roof, "n/a" if lad.emulated else over_torch, times(_mean(peers)) or "n/a"]


def _mean(ratios: list[float | None]) -> float | None:
    known = [r for r in ratios if r]
    return statistics.geometric_mean(known) if known else None


def _fusion(timings: list[Record], name: str = "") -> str:
    """Kernels and accesses as counted here, the kernels that the profiler saw and the time, of
    the examples whose name begins with `name`."""
    counted = [r for r in fusion.rows() if r.example.startswith(name)]
    if not counted:
        raise ValueError(f"table:fusion {name}: no example begins so")
    timed = {(r.case, r.rung): r for r in timings if r.operator == "fusion" and r.cold}
    rows = [["", "kernels", "tensors read or written", "on the H200", ""]]
    for row in counted:
        record = timed.get((row.example, row.way))
        cold = microseconds(records.median(record.cold)) if record else "no record"
        counts = [str(row.work.kernels), str(row.work.accesses)]
        rows.append([f"{row.example}, {row.way}", *counts, cold, record.why if record else ""])
    return _markdown(rows, "lrrrl")


def _host(timings: list[Record]) -> str:
    """Public functions beside PyTorch's own, on the smallest timed case."""
    rows = [["host time of a call", "kw", "torch", "kw / torch"]]
    for lad in ladders():
        by_name = {r.rung: r for r in timings if r.operator == lad.name and r.rung[:5] == "host:"}
        for suffix, what in (("", "no gradient"), ("+backward", "forward and backward")):
            ours, theirs = (by_name.get(f"host:{who}{suffix}") for who in ("kw", "torch"))
            if ours and theirs and ours.run == theirs.run:
                a, b = records.median(ours.host), records.median(theirs.host)
                name = f"{lad.name}, {what}"
                rows.append([name, microseconds(a), microseconds(b), times(a / b)])
    return _markdown(rows, "lrrr")


def _triton() -> str:
    """How many Triton rungs are the same machine code under two versions, and which are not."""
    document = data.document(records.ROOT / triton_versions.FILE, None)
    if document is None:
        return "No record of another version of Triton yet.\n"
    one, other = document["versions"]
    every = len(document["same"]) + len(document["other"])
    text = (
        f"Of {every} Triton rungs, {len(document['same'])} compile to the same machine code for an "
    )
    text += f"H200 (`{document['arch']}`) with Triton {one} and {other}"
    few = min((document["same"], document["other"]), key=len)
    if few:
        which = "" if few is document["same"] else "the others are "
        text += f": {which}" + ", ".join(f"`{n}`" for n in few)
    text += "."
    return "\n".join(textwrap.wrap(text, 100, break_on_hyphens=False)) + "\n"


def _attention() -> str:
    rows = attention_table.rows(REFERENCE_MACHINE)
    if not rows:
        return f"No record of attention's rates on {REFERENCE_MACHINE} yet.\n"
    return _markdown(rows, "rrrrl" + "r" * 7)


def _patched(step: patched.Patched | None) -> str:
    if step is None:
        return f"No record of a patched model on {REFERENCE_MACHINE} yet.\n"
    s = step.shape
    head = (
        f"{s['layers']} layers of {s['hidden']} ({s['intermediate']} in the MLP), {s['heads']} "
        f"heads, {s['kv_heads']} of keys, vocabulary {s['vocabulary']}; bfloat16, "
        f"{s['batch']} x {s['tokens']} tokens a step, PyTorch's fused AdamW; on "
        f"{REFERENCE_MACHINE}:"
    )
    return f"{head}\n\n{_markdown(patched.rows(step), 'l' + 'r' * 6)}"


def _training(run: training.Training | None) -> str:
    if run is None:
        return f"No record of the training check on {REFERENCE_MACHINE} yet.\n"
    rows = training.rows(run)
    verdict = (
        "; ".join(run.wrong()) or "all curves are inside the band, and all last steps are correct"
    )
    return f"On {REFERENCE_MACHINE}: {verdict}.\n\n{_markdown(rows, 'lrrrl')}"


def _curves(run: training.Training) -> str:
    """The band, the curves that made it and those of every swap."""
    band = run.band()
    runs = [("cuda", r.curve) for runs in run.swapped.values() for r in runs]
    runs += [("torch", r.curve) for r in run.native]
    svg = charts.band(
        band,
        runs,
        at=[str((i + 1) * training.EVERY) for i in range(len(band))],
        title="A GPT-2's loss with each operator swapped in alone, against the band's middle",
        caption=f"band: PyTorch's {len(run.native)} orders of the data (grey), 10% wider; green: "
        f"{len(run.swapped)} swaps, the same orders; by steps, on {REFERENCE_MACHINE}",
    )
    return charts.standalone(svg)


def _ladder(timings: list[Record], operator: str, case: str = "") -> str:
    lad = ladder(operator)
    table = metrics.table(lad, REFERENCE_MACHINE, case, timings) if case else headline(lad, timings)
    if table is None:
        return f"No record of {operator} on {REFERENCE_MACHINE} yet.\n"
    head = ["rung", "cold", "rate", "of roof", "over below", "over best peer", "host"]
    rows = [[*head, "workspace", "bound"]]
    for r in table.rows:
        name = f"`{r.name}`" if r.rung else r.name.removeprefix("peer:")
        if r.record is None or not r.timed:
            rows.append([name, r.status, *("" for _ in rows[0][2:])])
            continue
        figure = [microseconds(r.cold), r.rate, percent(r.of_roof), times(r.over_below)]
        workspace = size(r.workspace) if r.workspace else ""
        bound = r.record.bound
        rows.append([name, *figure, times(r.over_best), microseconds(r.host), workspace, bound])
    label = f", {table.label}" if table.label else ""
    head = f"`{table.case}`{label}, on {REFERENCE_MACHINE}"
    roof = f"; roof {rate(table.roof.gbps)}" if table.roof else ""
    return f"{head}{roof}:\n\n{_markdown(rows, 'lrrrrrrrl')}"


def _start(timings: list[Record], operator: str) -> str:
    """The first lines of an operator's page: how to call it, its figures, and its picture."""
    lad = ladder(operator)
    calls = ", ".join(_call(name) for name in LADDERS[".".join(lad.folder.parts[-2:])])
    figures, picture = _figures(lad, timings), _picture(timings, operator)
    return f"- **Use**: {calls}\n- **Figures**: {figures}\n- {picture}"


def _call(name: str) -> str:
    """A public function with its arguments, and what it replaces."""
    arguments = inspect.signature(getattr(kernelwright, name)).parameters.values()
    arguments = inspect.signature(getattr(kernelwright, name)).parameters.values()
    unannotated = {"annotation": inspect.Parameter.empty}
    plain = [p.replace(**unannotated) for p in arguments if p.name[0] != "_"]
    call = f"`kw.{name}{inspect.Signature(plain)}`"
    for module in (torch.nn.functional, torch):
        if hasattr(module, name):
            return f"{call} for `{module.__name__}.{name}`"
    return call


def _figures(lad: Ladder, timings: list[Record]) -> str:
    """The means over the timed cases, as a sentence, and how to time other shapes."""
    n = sum(bool(t.ours) for t in current(lad, timings))
    sample = f"`kernelwright bench {lad.name} --sample 40` times shapes that it was not tuned for"
    if n == 0:
        return f"the dispatched rung has no timing on {REFERENCE_MACHINE} yet. {sample}."
    words = ("of the roof", "PyTorch's speed", "the best peer's")
    means = zip(_means(lad, timings), words, strict=True)
    text = ", ".join(f"{mean} {what}" for mean, what in means if mean not in ("", "n/a"))
    cases = f"{n} cases" if n > 1 else "one case"
    return f"`{lad.name}`: {text} (geometric means over {cases} on {REFERENCE_MACHINE}). {sample}."


def _picture(timings: list[Record], operator: str) -> str:
    table = headline(ladder(operator), timings)
    if table is None:
        return f"**Picture**: none, because no rung has a timing on {REFERENCE_MACHINE} yet.\n"
    says = f"{operator}, `{table.case}`: each rung's share of the measured roof"
    return f"**Picture**:\n\n  ![{says}](../../../../../docs/ladders/{operator}.svg)\n"


def _cases(timings: list[Record], operator: str) -> str:
    lad = ladder(operator)
    tables = current(lad, timings)
    if not tables:
        return f"No record of {operator} on {REFERENCE_MACHINE} yet.\n"
    theirs = sorted({r.name for t in tables for r in t.timed if not r.rung})
    others = [*metrics.THEIRS, *theirs]
    names = [n.removeprefix("peer:") for n in others]
    rows = [["case", "best rung written here", "cold", "of roof", *names, "over the best of them"]]
    for t in tables:
        best = t.ours
        by_name = {r.name: microseconds(r.cold) for r in t.timed}
        mine = ["none", "", ""]
        if best:
            mine = [f"`{best.name}`", microseconds(best.cold), percent(best.of_roof)]
        over = times(best.over_best) if best else ""
        rows.append([f"`{t.case}`", *mine, *(by_name.get(n, "") for n in others), over])
    return _markdown(rows, "ll" + "r" * (len(rows[0]) - 2))


def _dissected(timings: list[Record], operator: str) -> str:
    rows = dissect_tables.steps(operator, REFERENCE_MACHINE, timings)
    head = dissect_tables.steps_head(operator, REFERENCE_MACHINE, timings)
    return f"{head}\n\n{_markdown(rows, 'l' + 'r' * (len(rows[0]) - 1))}"


def _counters(operator: str) -> str:
    rows, reasons = dissect_tables.counted(operator, REFERENCE_MACHINE)
    if len(rows) == 1:
        return f"No counters of {operator} on {REFERENCE_MACHINE} yet.\n"
    table = _markdown(rows, "ll" + "r" * (len(rows[0]) - 2))
    return table + "".join(f"\n{reason}\n" for reason in reasons)


def picture(timings: list[Record], operator: str) -> str:
    """A ladder's chart, a file that stands alone in light and in dark."""
    lad = ladder(operator)
    table = headline(lad, timings)
    if table is None:
        case = next(c.id for c in lad.operator.cases if c.use == "bench")
        table = metrics.table(lad, REFERENCE_MACHINE, case, timings)
    title = f"{lad.name}, {table.label}" if table.label else lad.name
    caption = f"{table.case} on {REFERENCE_MACHINE}: share of the measured roof"
    rung = sections.dispatched(lad, REFERENCE_MACHINE, table.case)
    return charts.standalone(charts.ladder(table, dispatched=rung, title=title, caption=caption))


def _markdown(rows: list[list[str]], align: str) -> str:
    head, *body = rows
    rule = ["---:" if a == "r" else "---" for a in align]
    lines = ["| " + " | ".join(r) + " |" for r in (head, rule, *body)]
    return "\n".join(lines) + "\n"


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    stale, pages = 0, texts()
    for path, text in pages.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{path.relative_to(ROOT)}: {'not current' if check else 'written'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.exit("make tables brings them up to date")


if __name__ == "__main__":
    main()
