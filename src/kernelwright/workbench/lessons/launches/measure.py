"""Runs the program, derives the cost of launches from the records of an H200, and times a launch
that overlaps with the previous one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, TensorSpec, i32
from kernelwright.machine import clock
from kernelwright.workbench.bench import roofs
from kernelwright.workbench.lessons import launching, programs, recorded
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
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("graph.cu")
DEPENDENT = Path(__file__).with_name("dependent.cu")
ELEMENTS = 1 << 15  # the blocks of both kernels fit on an H200 at the same time
KERNELS = (1, 2, 5, 10, 50)  # µs of a kernel
ASKED = 3
RUNGS = ("manual", "native", "compiled", "triton_row", "cuda_warp")
CASE = "4096x768-bf16-dim=-1"
DRAWN = 2  # µs of the picture's kernels
CELL, CELLS = 0.5, 64  # µs of a cell of the picture


def measure() -> Measured:
    empty = recorded.record("roofs", "roof:launch", "empty")
    host, chained = records.median(empty.host), records.median(empty.cold)
    (step,) = programs.ran(SOURCE)
    x, _, _ = step.grid
    stores = sum(a.lanes for a in step.accesses if a.kind == "store")
    tables = (
        Table(
            "program",
            "graph.cu in the emulator",
            ("kernel", "blocks", "elements stored by a launch"),
            ((step.kernel, x, stores),),
            EMULATOR,
        ),
        Table(
            "empty",
            "An empty kernel on an H200, launched by kernelwright",
            ("kernel", "host, µs per call", "in a graph, µs per launch"),
            (("empty", host, chained),),
            RECORD,
        ),
        Table(
            "shares",
            f"A sequence of equally long kernels, at {host:.2f} µs on the host per launch",
            ("kernel, µs", "µs per kernel", "GPU busy", "in a graph, µs per kernel"),
            tuple(_share(us, host, chained) for us in KERNELS),
            COMPUTED,
        ),
        Table(
            "records",
            f"softmax on {CASE}: time on the GPU in a graph, and of the host per call",
            ("rung", "GPU, µs", "host, µs", "launched one by one, limited by"),
            tuple(_record(r) for r in RUNGS),
            RECORD,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (("busy", 100 * ASKED / max(host, ASKED)), ("launches", 4 * _steps())),
            COMPUTED,
        ),
    )
    return Measured(tables, _picture(host, chained))


def here(device: torch.device) -> tuple[Table, ...]:
    rule = clock.QUICK if device.type == "cuda" else clock.CPU_QUICK
    with clock.session(device):
        smallest = roofs.launch_candidate(device)
        times = clock.measure([smallest], device, rule).times[smallest.name]
    what = "an empty kernel" if device.type == "cuda" else "PyTorch on one element"
    host = records.median(times.host) if times.host else records.median(times.cold)
    columns = ("call", "µs of the host per call")
    call = Table("here", "The smallest call on this machine", columns, ((what, host),), HERE)
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return (call,)
    title = f"Two dependent kernels on {ELEMENTS:,} floats, in a graph"
    return call, launching.times("dependent", title, dependent_calls(), device)


def dependent_calls() -> list[Call]:
    """The two kernels of dependent.cu, without and with an overlapping launch of the second."""
    x, w = (torch.randn(ELEMENTS) for _ in range(2))
    block = (256, 1, 1)
    grid = (ELEMENTS // block[0], 1, 1)
    y = TensorSpec.of(x)

    def call(name: str, overlaps: bool) -> Call:
        kernel = CudaKernel(DEPENDENT, "second")
        second = Launch(kernel, grid, ("w", "y", "z", i32(ELEMENTS)), block, overlaps=overlaps)
        return Call(
            name, DEPENDENT, "first", grid, block, ("x", "y", i32(ELEMENTS)),
            inputs={"x": x, "w": w}, outputs={"y": y, "z": y},
            expected={"y": 3 * x, "z": w * (3 * x)}, bytes=5 * x.nbytes, then=(second,),
        )  # fmt: skip

    return [call("one after the other", False), call("with an overlapping launch", True)]


def _steps() -> int:
    """Launches of `launch_all` in the program, which checks that four times as many were made."""
    match = re.search(r"STEPS = (\d+)", SOURCE.read_text(encoding="utf-8"))
    assert match is not None
    return int(match[1])


def _share(us: int, host: float, chained: float) -> tuple[Cell, ...]:
    each = max(us, host)
    return str(us), each, f"{100 * us / each:.3g}%", max(float(us), chained)


def _record(rung: str) -> tuple[Cell, ...]:
    r = recorded.record("softmax", rung, CASE)
    gpu, host = records.median(r.cold), records.median(r.host)
    return rung, gpu, host, "the host" if host > gpu else "the GPU"


def _picture(host: float, chained: float) -> Picture:
    span = CELL * CELLS
    calls = [i * host for i in range(int(span / host) + 1)]
    # a launch ends, then its kernel runs
    single = [(at + host, at + host + DRAWN) for at in calls]
    graph = [(host + i * DRAWN, host + (i + 1) * DRAWN - CELL / 2) for i in range(int(span))]
    rows = (
        (
            "host: launches",
            [(at, at + host - CELL) for at in calls],
            "store",
            f"{host:.2f} µs each",
        ),
        ("GPU: kernels", single, "load", f"busy {DRAWN / max(host, DRAWN):.0%} of the time"),
        ("host: one graph", [(0.0, host)], "store", "one call"),
        ("GPU: kernels", graph, "load", "without gaps of the host"),
    )
    return Picture(
        f"Kernels of {DRAWN} µs, launched one by one and as a graph",
        (
            f"Time runs from left to right, {span:g} µs; a cell is {CELL} µs, filled as far as "
            "it is busy.",
            f"Computed from the H200's {host:.2f} µs of host time per launch; a gap of a cell "
            "separates launches.",
        ),
        tuple(strips.Strip(label, _busy(at), words, kind) for label, at, kind, words in rows),
    )


def _busy(intervals: Sequence[tuple[float, float]]) -> list[float]:
    """The share of each cell that intervals cover."""
    cells: list[float] = []
    for i in range(CELLS):
        start, end = i * CELL, (i + 1) * CELL
        covered = sum(max(0.0, min(end, b) - max(start, a)) for a, b in intervals)
        cells.append(min(1.0, covered / CELL))
    return cells
