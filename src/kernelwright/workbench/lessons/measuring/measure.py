"""The errors of six wrong ways to time, from the records of an H200, and faults found by checks."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelwright.contract import Scalar, TensorSpec, i32
from kernelwright.emulator import EmulationError
from kernelwright.machine import clock
from kernelwright.workbench.lessons import launching, recorded
from kernelwright.workbench.lessons.launching import Call
from kernelwright.workbench.lessons.tables import (
    COMPUTED,
    EMULATOR,
    HERE,
    RECORD,
    Cell,
    Measured,
    Picture,
    Table,
)
from kernelwright.workbench.records import records
from kernelwright.workbench.records.records import REFERENCE_MACHINE, Record
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("faults.cu")
N, BLOCK = 128, 128
LONG, SHORT = "16384x4096-bf16-dim=-1", "4096x768-bf16-dim=-1"
CONTROLS = ("softmax", "gelu", "sum", "layer_norm")
CELLS, LOWEST, HIGHEST = 64, 1 / 16, 64  # of the picture


@dataclass(frozen=True)
class Way:
    """A wrong way to time: the right figure, and the figure that it reports."""

    name: str
    of: str
    unit: str
    right: float
    reported: float

    @property
    def ratio(self) -> float:
        return self.reported / self.right


def measure() -> Measured:
    ways = _ways()
    rows = tuple((w.name, w.of, w.unit, w.right, w.reported, _percent(w.ratio)) for w in ways)
    columns = ("way", "on", "figure", "right", "reported", "error")
    tables = (
        Table("ways", "Six ways to time wrongly, on an H200", columns, rows, RECORD),
        Table(
            "faults",
            "faults.cu under the checks of the emulator",
            ("kernel", "check", "findings", "lines"),
            (
                ("beyond", "bounds", *_found(_beyond(), "bounds")),
                ("unordered", "races", *_found(_unordered(), "races")),
                ("expects", "assert", *_asserted(_expects())),
            ),
            EMULATOR,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (("loop", max(7, 3)), ("share", 100 * 4.7 / 5.0)),
            COMPUTED,
        ),
    )
    return Measured(tables, _picture(ways))


def here(device: torch.device) -> tuple[Table, ...]:
    """Times the same call as two candidates."""
    x = torch.randn(1024, 1024, device=device)
    rule = clock.QUICK if device.type == "cuda" else clock.CPU_QUICK
    with clock.session(device):
        calls = [clock.Candidate(name, [lambda: torch.softmax(x, -1)]) for name in ("A", "A again")]
        times = clock.measure(calls, device, rule).times
    first, again = (records.median(times[c.name].cold) for c in calls)
    row = ("torch.softmax", first, again, f"{100 * abs(again / first - 1):.3g}%")
    columns = ("call", "A, µs", "A again, µs", "difference")
    return (Table("here", "A/A control on this machine", columns, (row,), HERE),)


def _percent(ratio: float) -> str:
    error = 100 * (ratio - 1)
    return f"{error:+,.0f}%" if abs(error) >= 100 else f"{error:+.3g}%"


def _ways() -> tuple[Way, ...]:
    long = recorded.record("softmax", "cuda_block", LONG)
    compiled = recorded.record("softmax", "compiled", SHORT)
    warp = recorded.record("softmax", "cuda_warp", SHORT)
    roof = recorded.record("roofs", "roof:r1w1", "2048MiB")
    apart, fused = _gelu()
    cold = records.median(warp.cold)
    near = records.median(_roof_of(warp).cold)
    moved, whole = warp.gbps or 0.0, roof.gbps or 0.0
    useful = fused.bytes / records.median(apart.cold) / 1e3
    small = "softmax 4096 x 768"
    return (
        Way(
            "no synchronization", "softmax 16384 x 4096", "µs",
            records.median(long.cold), records.median(long.host),
        ),
        Way(
            "time of the host", small, "µs",
            records.median(compiled.cold), records.median(compiled.host),
        ),
        Way("operands in the cache", small, "µs", cold, records.median(warp.warm)),
        Way("bytes of the formula", "gelu, a kernel each", "GB/s", useful, apart.gbps or 0.0),
        Way("roof of another size", small, "% of roof", 100 * near / cold, 100 * moved / whole),
        Way("no A/A control", "four operators", "ratio", 1.0, _control()),
    )  # fmt: skip


def _gelu() -> tuple[Record, Record]:
    """GELU with one kernel per operation, and as one kernel."""
    by_rung = {
        r.rung: r
        for r in records.load(REFERENCE_MACHINE, "fusion")
        if r.case == "gelu(x)" and r.cold
    }
    return by_rung["an operator a kernel"], by_rung["kw.gelu"]


def _roof_of(r: Record) -> Record:
    """The roof for a record's case, measured in the record's run."""
    (roof,) = (
        x
        for x in records.load(REFERENCE_MACHINE, r.operator)
        if x.run == r.run and x.case == r.case and x.rung == "roof:r1w1"
    )
    return roof


def _control() -> float:
    """The largest ratio of two timings of one kernel in one run."""
    ratios: list[float] = []
    for operator in CONTROLS:
        timed = [r for r in records.load(REFERENCE_MACHINE, operator) if r.cold]
        native = {(r.run, r.case): r for r in timed if r.rung == "native"}
        for r in timed:
            if r.rung == "control" and (r.run, r.case) in native:
                pair = records.median(r.cold), records.median(native[r.run, r.case].cold)
                ratios.append(max(pair) / min(pair))
    return max(ratios)


def _beyond() -> Call:
    return _call("beyond", torch.arange(float(N)), (i32(N),))


def _unordered() -> Call:
    return _call("unordered", torch.arange(float(N)))


def _expects() -> Call:
    return _call("expects", torch.arange(float(N)) - 1, (i32(N),))


def _call(kernel: str, x: torch.Tensor, more: tuple[Scalar, ...] = ()) -> Call:
    return Call(
        kernel, SOURCE, kernel, (N // BLOCK, 1, 1), (BLOCK, 1, 1), ("x", "y", *more), {"x": x},
        {"y": TensorSpec.contiguous((N,), torch.float32)},
    )  # fmt: skip


def _found(call: Call, check: str) -> tuple[Cell, ...]:
    texts = [f.text for f in launching.findings(call, (check,))]
    return "found" if texts else "none", _lines(texts)


def _asserted(call: Call) -> tuple[Cell, ...]:
    try:
        launching.results(call)
    except EmulationError as e:
        return "found", _lines([str(e).partition(", called from")[0]])
    return "none", ""


def _lines(texts: list[str]) -> str:
    lines = {int(n) for text in texts for n in re.findall(r"faults\.cu:(\d+)", text)}
    return ", ".join(map(str, sorted(lines)))


def _picture(ways: tuple[Way, ...]) -> Picture:
    span = math.log(HIGHEST / LOWEST)

    def at(ratio: float) -> float:
        return CELLS * math.log(ratio / LOWEST) / span

    drawn: list[strips.Strip] = []
    for w in ways:
        low, high = sorted((at(1), at(w.ratio)))
        cells = [max(0.0, min(1.0, min(high, i + 1) - max(low, i))) for i in range(CELLS)]
        words = f"{w.ratio:.2g} times the right figure"
        drawn.append(strips.Strip(w.name, cells, words, "store" if w.ratio > 1 else "load"))
    return Picture(
        "What is reported, as a multiple of what is right",
        (
            f"From left to right: 1/{1 / LOWEST:.0f} to {HIGHEST} times, logarithmic. Blue "
            "reaches from the right figure to a smaller one, brown to a larger one.",
        ),
        tuple(drawn),
    )
