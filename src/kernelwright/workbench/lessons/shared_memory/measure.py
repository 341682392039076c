"""Counts bank conflicts of reads at a stride and of a transpose."""

from __future__ import annotations

from math import gcd
from pathlib import Path

import torch

from kernelwright.contract import Scalar, TensorSpec, i32
from kernelwright.emulator.dissect import Dissected
from kernelwright.workbench.lessons import launching, recorded
from kernelwright.workbench.lessons.launching import Call
from kernelwright.workbench.lessons.tables import EMULATOR, Cell, Measured, Picture, Table
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("tiles.cu")
SMALL, LARGE = 64, 8192  # rows and columns in the emulator, and when timed on a GPU
STRIDES = (1, 2, 3, 4, 8, 16, 32, 33)
ASKED = {"stride 6": 6, "one word": 0}
TRANSPOSES = ("direct", "padded<0>", "padded<1>", "swizzled")
PITCHES = (32, 33)


def measure() -> Measured:
    strided = {s: _strided(s) for s in (*STRIDES, *ASKED.values())}
    transposes = {k: _transpose(k, SMALL) for k in TRANSPOSES}
    dynamic = {p: _dynamic(p, SMALL) for p in PITCHES}
    calls = [*strided.values(), *transposes.values(), *dynamic.values()]
    launches = launching.counted(calls)

    def passes(call: Call) -> float:
        load = next(
            a for a in launches[call.name].accesses if (a.memory, a.kind) == ("shared", "load")
        )
        return load.passes / load.requests

    strides = tuple((str(s), gcd(s, 32), passes(strided[s])) for s in STRIDES)
    tables = (
        Table(
            "strides",
            "A warp reads 32 words of shared memory at a stride",
            ("stride", "gcd(stride, 32)", "passes per request"),
            strides,
            EMULATOR,
        ),
        Table(
            "transposes",
            f"Transpose of {SMALL} x {SMALL} floats",
            ("kernel", "global load sectors", "global store sectors", "shared passes", "conflicts"),
            tuple((k, *_costs(launches[call.name])) for k, call in transposes.items()),
            EMULATOR,
        ),
        Table(
            "dynamic",
            "The transpose with dynamic shared memory",
            ("pitch", "bytes per block", "shared passes", "conflicts"),
            tuple((str(p), c.shared, *_costs(launches[c.name])[2:]) for p, c in dynamic.items()),
            EMULATOR,
        ),
        Table(
            "asked",
            "The reads of the questions",
            ("read", "passes per request"),
            tuple((k, passes(strided[s])) for k, s in ASKED.items()),
            EMULATOR,
        ),
        recorded.times(
            "records",
            "Sum of 2^28 floats: a tree whose step doubles, and one whose step halves",
            "sum",
            ("cuda_strided", "cuda_sequential"),
            "268435456-f32-dim=None",
        ),
    )
    return Measured(tables, _picture([*(transposes[k] for k in TRANSPOSES[1:]), strided[2]]))


def here(device: torch.device) -> tuple[Table, ...]:
    if device.type != "cuda":
        return ()
    calls = [*(_transpose(k, LARGE) for k in TRANSPOSES), *(_dynamic(p, LARGE) for p in PITCHES)]
    return (launching.times("times", f"Transpose of {LARGE} x {LARGE} floats", calls, device),)


def _strided(stride: int) -> Call:
    x = torch.arange(32 * max(stride, 1), dtype=torch.float32)
    at = torch.arange(32) * stride
    return Call(
        f"strided<{stride}>", SOURCE, f"strided<{stride}>", (1, 1, 1), (32, 1, 1), ("x", "y"),
        {"x": x}, {"y": TensorSpec.contiguous((32,), torch.float32)}, {"y": x[at]},
    )  # fmt: skip


def _transpose(kernel: str, n: int) -> Call:
    return _call(kernel, kernel, n)


def _dynamic(pitch: int, n: int) -> Call:
    return _call(f"dynamic, {pitch}", "dynamic", n, (i32(pitch),), 32 * pitch * 4)


def _call(name: str, kernel: str, n: int, more: tuple[Scalar, ...] = (), shared: int = 0) -> Call:
    x = torch.arange(n * n, dtype=torch.float32).view(n, n)
    return Call(
        name, SOURCE, kernel, (n // 32, n // 32, 1), (32, 8, 1), ("x", "y", i32(n), *more),
        {"x": x}, {"y": TensorSpec.contiguous((n, n), torch.float32)}, {"y": x.T},
        shared, bytes=8 * n * n,
    )  # fmt: skip


def _costs(launch: Dissected) -> tuple[Cell, ...]:
    loads, stores = (
        sum(a.sectors for a in launch.accesses if a.kind == kind) for kind in ("load", "store")
    )
    passes = sum(a.passes for a in launch.accesses)
    return loads, stores, passes, sum(a.conflicts for a in launch.accesses if a.memory == "shared")


def _picture(calls: list[Call]) -> Picture:
    drawn: list[strips.Strip] = []
    for name, launch in launching.traced(calls).items():
        first = next(r for r in launch.requests if (r.memory, r.kind) == ("shared", "load"))
        cells, words = strips.banks(first)
        drawn.append(strips.Strip(name, cells, words.split(",")[0], tall=38))
    return Picture(
        "The banks of a warp's first read of shared memory",
        (
            "A cell is one of the 32 banks; its height is the number of different words that the "
            "warp needs of it,",
            "on a scale from 0 to the largest number of the row, at least 4. The request takes as "
            "many passes as its fullest bank has words.",
        ),
        tuple(drawn),
    )
