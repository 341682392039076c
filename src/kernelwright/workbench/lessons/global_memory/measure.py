"""Counts the sectors of copies that read in different patterns."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import TensorSpec, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.emulator.dissect import SECTOR, Access
from kernelwright.workbench.lessons import launching, recorded
from kernelwright.workbench.lessons.launching import Call
from kernelwright.workbench.lessons.tables import EMULATOR, Cell, Measured, Picture, Table
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("copy.cu")
BLOCK = 128
SMALL, LARGE = 1024, 1 << 24  # elements in the emulator, and when timed on a GPU
STRIDES = (1, 2, 4, 8, 16)
OFFSETS = (0, 1, 8, 16)
VECTORS = {"float": 1, "float2": 2, "float4": 4}
COLUMNS = ("load requests", "sectors per request", "bytes used")


def measure() -> Measured:
    strided = {s: _strided(s, SMALL) for s in (*STRIDES, 3)}
    shifted = {o: _shifted(o, SMALL) for o in (*OFFSETS, 6)}
    vectors = {v: _vectors(v, SMALL) for v in VECTORS}
    calls = [*strided.values(), *shifted.values(), *vectors.values()]
    loads = {name: _load(d.accesses) for name, d in launching.counted(calls).items()}

    def table(name: str, title: str, head: str, rows: dict[str, Call]) -> Table:
        figures = tuple((str(r), *_figures(loads[call.name])) for r, call in rows.items())
        return Table(name, title, (head, *COLUMNS), figures, EMULATOR)

    asked = {"stride 3": strided[3], "offset 6": shifted[6]}
    tables = (
        table(
            "strides",
            f"{SMALL:,} floats read at a stride",
            "stride",
            {str(s): strided[s] for s in STRIDES},
        ),
        table(
            "offsets",
            f"{SMALL:,} floats read from an offset, in floats",
            "offset",
            {str(o): shifted[o] for o in OFFSETS},
        ),
        table("vectors", f"{SMALL:,} floats copied as vectors", "type", vectors),
        table("asked", "The patterns of the questions", "pattern", asked),
        recorded.times(
            "records",
            "GELU of 2^28 bfloat16 elements: one element per thread, and 16 bytes per thread",
            "gelu",
            ("cuda_thread", "cuda_vec16"),
            "268435456-bf16-approximate=none",
        ),
    )
    return Measured(tables, _picture([strided[1], strided[2], strided[8], shifted[1]]))


def here(device: torch.device) -> tuple[Table, ...]:
    if device.type != "cuda":
        return ()
    calls = [
        *(_strided(s, LARGE) for s in STRIDES),
        *(_shifted(o, LARGE) for o in OFFSETS),
        *(_vectors(v, LARGE) for v in VECTORS),
    ]
    title = f"Copies of {LARGE:,} floats; GB/s counts the requested bytes"
    return (launching.times("times", title, calls, device),)


def _strided(stride: int, n: int) -> Call:
    return _call(f"strided<{stride}>", n, n * stride, lambda x: x[::stride])


def _shifted(offset: int, n: int) -> Call:
    return _call(f"shifted<{offset}>", n, n + offset, lambda x: x[offset:])


def _vectors(kind: str, n: int) -> Call:
    return _call(f"vectors<{kind}>", n, n, lambda x: x, VECTORS[kind])


def _call(kernel: str, n: int, size: int, expected, lanes: int = 1) -> Call:
    x = torch.arange(size, dtype=torch.float32)
    return Call(
        kernel, SOURCE, kernel, (cdiv(n // lanes, BLOCK), 1, 1), (BLOCK, 1, 1),
        ("x", "y", i32(n // lanes)), {"x": x}, {"y": TensorSpec.contiguous((n,), torch.float32)},
        {"y": expected(x)}, bytes=8 * n,
    )  # fmt: skip


def _load(accesses: tuple[Access, ...]) -> Access:
    (load,) = (a for a in accesses if a.kind == "load")
    return load


def _figures(load: Access) -> tuple[Cell, ...]:
    used = load.bytes / (load.sectors * SECTOR)
    return load.requests, load.sectors / load.requests, f"{100 * used:.3g}%"


def _picture(calls: list[Call]) -> Picture:
    launches = launching.traced(calls)
    drawn: list[strips.Strip] = []
    for name, launch in launches.items():
        first = next(r for r in launch.requests if r.kind == "load")
        cells, words = strips.sectors(first, SECTOR * 32)
        drawn.append(strips.Strip(name, cells, words, tall=38))
    return Picture(
        "The sectors of a warp's first load",
        (
            "A cell is one 32-byte sector of x, from its start; it is filled as far as the lanes "
            "of the warp read it.",
            "A sector is transferred whole: the empty part of a touched cell is transferred, but "
            "not used.",
        ),
        tuple(drawn),
    )
