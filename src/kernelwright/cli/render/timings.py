"""The summary at the end of `bench`."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from kernelwright.contract import Ladder
from kernelwright.machine import here
from kernelwright.support.words import counted
from kernelwright.workbench.bench.bench import stopping_rule
from kernelwright.workbench.bench.cpu_verification import COMPILED, VERIFIED, WRONG_HERE
from kernelwright.workbench.bench.result import BenchResult
from kernelwright.workbench.bench.workload import chosen
from kernelwright.workbench.records import records
from kernelwright.workbench.verify.coverage import skip

from .tables import Column, Table


def summary(
    ladders: list[Ladder],
    result: BenchResult,
    *,
    quick: bool,
    cases: list[str] | None = None,
    seconds: float = 0.0,
    page: Path | None = None,
) -> Table:
    """What a bench run timed and verified on this machine, and the cost of a longer run.

    Args:
        quick, cases: the options of the run.
        seconds: the duration of the run.
        page: the report that was written, if any.
    """
    timed = [r for r in result.records if r.cold and ":" not in r.rung and r.rung != "control"]
    rungs, shapes = {(r.operator, r.rung) for r in timed}, {(r.operator, r.case) for r in timed}
    rows = [
        (
            "timed here",
            f"{counted(len(rungs), 'rung')} on {counted(len(shapes), 'case')}, all verified, "
            f"in {_duration(seconds)}",
        )
    ]
    stood_in = {(s.operator, s.rung): s.why for s in result.skipped}
    for what, how in ((VERIFIED, "interpreted or emulated"), (COMPILED, "for an H200")):
        count = sum(why.startswith(what) for why in stood_in.values())
        if count:
            rows.append((what, f"{counted(count, 'GPU rung')} on one small case each, {how}"))
    wrong = {(r.operator, r.rung): r.why for r in result.records if r.outcome in ("wrong", "error")}
    wrong |= {key: why for key, why in stood_in.items() if why.startswith(WRONG_HERE)}
    rows += [("wrong", f"{'.'.join(key)}: {why}") for key, why in wrong.items()]
    names = " ".join(dict.fromkeys(x.name.removesuffix(".backward") for x in ladders))
    device = here()
    pairs = sum(
        skip(x, rung, config, case, device.type) is None
        for x in ladders for rung in x.rungs for config in rung.configs for case in x.operator.cases
    )  # fmt: skip
    rows.append(
        (
            "next",
            f"kernelwright verify {names}: all cases, {pairs:,} comparisons",
        )
    )
    if quick:
        more, less = (stopping_rule(device, q, None).seconds for q in (False, True))
        many = len(chosen(ladders, cases, device, quick=False))
        cost = many * (seconds / max(len(shapes), 1) + more - less)
        types = "float32 and bfloat16 of each shape, " if device.type == "cpu" else ""
        words = f"without --quick: {types}up to {more:g} s of samples per case instead of {less:g}"
        rows.append(("", f"{words}: {counted(many, 'case')}, about {_duration(cost)}"))
    if device.type == "cpu":
        rows.append(
            ("", f"on a GPU: times of every rung; those above are from {records.REFERENCE_MACHINE}")
        )
    if page:
        rows.append(("report", f"{page}: {page.stat().st_size / 1e6:.1f} MB, opens in any browser"))
    out = Table(Column("what"), Column("summary", wraps=True), head=False)
    for what, words in rows:
        out.add(Text(what, "bold red" if what == "wrong" else "bold"), words)
    return out


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
