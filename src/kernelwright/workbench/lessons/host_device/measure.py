"""Runs the program, and computes the cost of copies and the savings of overlapping them."""

from __future__ import annotations

import mmap
import resource
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from kernelwright.machine import clock, timers
from kernelwright.workbench.lessons import programs, recorded
from kernelwright.workbench.lessons.tables import (
    COMPUTED,
    EMULATOR,
    HERE,
    Cell,
    Measured,
    Picture,
    Table,
)
from kernelwright.workbench.records import records
from kernelwright.workbench.report import strips

from . import unified

SOURCE = Path(__file__).with_name("copies.cu")
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
#: GB/s of 16 lanes in one direction, from gigabits per second and lane; 128 of 130 bits are data.
PCIE = {f"PCIe {g}.0 x16": rate * 16 / 8 * 128 / 130 for g, rate in ((3, 8), (4, 16), (5, 32))}
BUS = "PCIe 5.0 x16"
PARTS = (1, 2, 4, 8, 16)
PAGES = (4 * KIB, 64 * KIB, 2 * MIB)
TOUCHED, COPIED = 64 * MIB, 64 * MIB
CELLS = 60


def measure() -> Measured:
    (kernel,) = programs.ran(SOURCE)
    read = recorded.record("roofs", "roof:r1w0", "2048MiB").gbps or 0.0
    gelu = records.median(
        recorded.record("gelu", "cuda_vec16", "268435456-f32-approximate=none").cold
    )
    rates = {**PCIE, "DRAM of an H200 (recorded)": read}
    copy = GIB / PCIE[BUS] / 1e6  # ms
    stages = (copy, gelu / 1e3, copy)
    stored = sum(a.lanes for a in kernel.accesses if a.kind == "store")
    tables = (
        Table(
            "program",
            "copies.cu in the emulator: the first launch",
            ("kernel", "blocks", "elements stored"),
            ((kernel.kernel, kernel.grid[0], stored),),
            EMULATOR,
        ),
        Table(
            "links",
            "Moving 1 GiB",
            ("link", "GB/s", "ms"),
            tuple((name, gbps, GIB / gbps / 1e6) for name, gbps in rates.items()),
            COMPUTED,
        ),
        Table(
            "stages",
            f"GELU of 2^28 floats: copies over {BUS}, the kernel as recorded on an H200",
            ("stage", "ms"),
            (("copy to the device", copy), ("kernel", gelu / 1e3), ("copy back", copy)),
            COMPUTED,
        ),
        Table(
            "overlap",
            "The three stages in parts",
            ("parts", "ms", "share of the time in sequence"),
            tuple(
                (str(p), _pipeline(stages, p), f"{100 * _pipeline(stages, p) / sum(stages):.3g}%")
                for p in PARTS
            ),
            COMPUTED,
        ),
        Table(
            "pages",
            "Pages of 64 MiB of unified memory",
            ("page", "pages"),
            tuple((_size(p), 64 * MIB // p) for p in PAGES),
            COMPUTED,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (("copy", 4 * GIB / PCIE[BUS] / 1e6), ("parts", _pipeline((8, 8, 8), 8))),
            COMPUTED,
        ),
    )
    return Measured(tables, _picture())


def here(device: torch.device) -> tuple[Table, ...]:
    if device.type != "cuda":
        return (_faults(),)
    return _copies(device), unified.times(device)


def _copies(device: torch.device) -> Table:
    """Copies from pageable and from pinned memory."""
    there = torch.empty(COPIED, dtype=torch.uint8, device=device)
    hosts = {
        "pageable": torch.ones(COPIED, dtype=torch.uint8),
        "pinned": torch.ones(COPIED, dtype=torch.uint8, pin_memory=True),
    }

    def candidate(name: str, host: torch.Tensor) -> clock.Candidate:
        call = partial(there.copy_, host, non_blocking=True)
        return clock.Candidate(name, [], track=lambda: timers.launched([call], device))

    with clock.session(device):
        candidates = [candidate(name, host) for name, host in hosts.items()]
        times = clock.measure(candidates, device, clock.QUICK).times
    us = {name: records.median(t.cold) for name, t in times.items()}
    rows = tuple((name, t, COPIED / t / 1e3) for name, t in us.items())
    return Table("here", "Copies of 64 MiB to the GPU", ("memory", "µs", "GB/s"), rows, HERE)


def _faults() -> Table:
    """Page faults of the host's own virtual memory: the first write of a page, and the second."""
    rows: list[tuple[Cell, ...]] = []
    with mmap.mmap(-1, TOUCHED) as memory:
        for name in ("first", "second"):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            start = time.perf_counter()
            for at in range(0, TOUCHED, mmap.PAGESIZE):
                memory[at] = 1
            ms = 1e3 * (time.perf_counter() - start)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            rows.append((name, faults, ms))
    title = f"A byte written to each page of {TOUCHED // MIB} MiB of the host's memory"
    return Table("here", title, ("write", "page faults", "ms"), tuple(rows), HERE)


def _pipeline(stages: Sequence[float], parts: int) -> float:
    """The time of a pipeline whose stages process different parts of the data at the same time.

    Args:
        stages: the duration of each stage for all of the data.
        parts: the number of equal parts into which the data is split.
    """
    return (sum(stages) + (parts - 1) * max(stages)) / parts


def _size(n: int) -> str:
    return f"{n // MIB} MiB" if n >= MIB else f"{n // KIB} KiB"


def _picture() -> Picture:
    stages = ("copy to the device", "kernel", "copy back")
    drawn: list[strips.Strip] = []
    for parts in (1, 4):
        cells = CELLS // 3 // parts  # of one part of one stage
        total = cells * (3 + parts - 1)
        for i, stage in enumerate(stages):
            busy = range(i * cells, (i + parts) * cells)
            row = [0.6 if c in busy and (c + 1) % cells == 0 else float(c in busy)
                   for c in range(CELLS)]  # fmt: skip
            words = f"{parts} part{'s' * (parts > 1)}, {total / CELLS:.0%} of the time"
            kind = "load" if stage == "kernel" else "store"
            drawn.append(strips.Strip(stage, row, words if i == 0 else "", kind))
    return Picture(
        "Three stages of equal length, as a whole and in four parts",
        (
            "Time runs from left to right. Each part has its stream. A lower cell is the end of a "
            "part.",
            "Copies in both directions and a kernel can run at the same time.",
        ),
        tuple(drawn),
    )
