"""Occupancy from the limits of a multiprocessor, bytes in flight, waves, and coarsened threads."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import H200, TensorSpec, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.emulator.dissect import Dissected
from kernelwright.machine import gpu_of
from kernelwright.toolchain import binary
from kernelwright.workbench.lessons import launching, recorded
from kernelwright.workbench.lessons.launching import Call
from kernelwright.workbench.lessons.tables import (
    COMPUTED,
    EMULATOR,
    RECORD,
    Cell,
    Measured,
    Picture,
    Table,
)
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("coarse.cu")
ARCH = H200.arch
#: Threads and shared memory (KiB) per block, and registers per thread.
LAUNCHES = ((256, 0, 32), (256, 0, 64), (256, 0, 128), (1024, 0, 40), (128, 48, 32), (32, 0, 32))
ASKED = (512, 0, 56)
LATENCIES = (400, 600, 800)  # ns
GRIDS = (66, 132, 133, 264, 265, 1320, 1321)
ASKED_GRID = 300
TILES = (1, 2, 4)
SMALL, LARGE = 64, 4096


def measure() -> Measured:
    products = {t: _product(t, SMALL) for t in TILES}
    launches = launching.counted(list(products.values()))
    bandwidth = recorded.record("roofs", "roof:r1w0", "2048MiB").gbps or 0.0
    tables = (
        Table(
            "occupancy",
            "Blocks that an H200's multiprocessor holds at once",
            (
                "threads, KiB shared, registers",
                "blocks",
                "warps",
                "occupancy",
                "limited by",
            ),
            tuple(_occupancy(*x) for x in LAUNCHES),
            COMPUTED,
        ),
        Table(
            "flight",
            f"Bytes that must be in flight for {bandwidth / 1000:.2f} TB/s",
            ("latency, ns", "in all", "per multiprocessor", "per thread, of 2,048"),
            tuple(_flight(ns, bandwidth) for ns in LATENCIES),
            COMPUTED,
        ),
        Table("limit", "Roof of reading 2 GiB", ("roof", "GB/s"), (("read", bandwidth),), RECORD),
        Table(
            "waves",
            f"Waves of a grid on {H200.sms} multiprocessors, one block on each at once",
            ("blocks", "waves", "busy share"),
            tuple((str(n), cdiv(n, H200.sms), f"{100 * _busy(n):.3g}%") for n in GRIDS),
            COMPUTED,
        ),
        Table(
            "products",
            f"Matrix product of {SMALL} x {SMALL} floats",
            ("kernel", "blocks", "global load sectors", "shared store requests"),
            tuple((f"product<{t}>", *_traffic(launches[c.name])) for t, c in products.items()),
            EMULATOR,
        ),
        recorded.times(
            "records",
            "GELU of 2^28 bfloat16 elements: 2 and 16 bytes per thread",
            "gelu",
            ("cuda_thread", "cuda_vec16"),
            "268435456-bf16-approximate=none",
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (("warps", _occupancy(*ASKED)[2]), ("busy", 100 * _busy(ASKED_GRID))),
            COMPUTED,
        ),
    )
    return Measured(tables, _picture())


def here(device: torch.device) -> tuple[Table, ...]:
    gpu = gpu_of(device)
    if gpu is None:
        return ()
    products = [_product(t, LARGE) for t in TILES]
    slots = 2 * gpu.sms  # of blocks of 1,024 threads
    grids = [_work(n) for n in (slots // 2, slots, slots + 1, 2 * slots, 2 * slots + 1)]
    return (
        launching.times("times", f"Matrix product of {LARGE} x {LARGE} floats", products, device),
        launching.times("sawtooth", "Blocks of 1,024 threads of equal work", grids, device),
    )


def _occupancy(threads: int, shared: int, registers: int) -> tuple[Cell, ...]:
    occupancy = binary.occupancy(ARCH, threads, registers, 1024 * shared)
    share = f"{100 * occupancy.fraction:.3g}%"
    return (
        f"{threads}, {shared}, {registers}",
        occupancy.blocks,
        occupancy.warps,
        share,
        occupancy.limit,
    )


def _flight(ns: int, gbps: float) -> tuple[Cell, ...]:
    """Little's law: latency times bandwidth."""
    bytes_ = ns * gbps
    each = bytes_ / H200.sms
    return str(ns), f"{bytes_ / 1e6:.2f} MB", f"{each / 1e3:.1f} kB", f"{each / 2048:.1f} B"


def _busy(blocks: int) -> float:
    return blocks / (cdiv(blocks, H200.sms) * H200.sms)


def _product(tiles: int, n: int) -> Call:
    draw = torch.Generator().manual_seed(tiles)
    a, b = (torch.rand((n, n), generator=draw) / n for _ in range(2))
    return Call(
        f"product<{tiles}>", SOURCE, f"product<{tiles}>", (n // (16 * tiles), n // 16, 1),
        (16, 16, 1), ("a", "b", "y", i32(n)), {"a": a, "b": b},
        {"y": TensorSpec.contiguous((n, n), torch.float32)}, {"y": a @ b}, bytes=12 * n * n,
    )  # fmt: skip


def _work(blocks: int) -> Call:
    n = 1024 * blocks
    return Call(
        f"{blocks} blocks", SOURCE, "work", (blocks, 1, 1), (1024, 1, 1), ("y",),
        {"unused": torch.zeros(1)}, {"y": TensorSpec.contiguous((n,), torch.float32)},
        {"y": torch.full((n,), 2.0)}, bytes=4 * n,
    )  # fmt: skip


def _traffic(launch: Dissected) -> tuple[Cell, ...]:
    x, y, _ = launch.grid
    loads = sum(a.sectors for a in launch.accesses if a.kind == "load")
    stored = (a.requests for a in launch.accesses if (a.memory, a.kind) == ("shared", "store"))
    return x * y, loads, sum(stored)


def _picture() -> Picture:
    each = 2  # blocks of a cell
    drawn: list[strips.Strip] = []
    for first in (1, 5):
        waves = range((first - 1) * H200.sms, (first + 3) * H200.sms, each)
        label = f"{waves[0]} to {waves[-1] + each}"
        cells = [_busy(n + each) for n in waves]
        drawn.append(strips.Strip(label, cells, f"waves {first} to {first + 3}", tall=76))
    return Picture(
        f"Busy share of {H200.sms} multiprocessors over the number of blocks",
        (
            "A cell is two more blocks; its height is blocks / (waves x multiprocessors). It falls "
            "where a wave begins.",
        ),
        tuple(drawn),
    )
