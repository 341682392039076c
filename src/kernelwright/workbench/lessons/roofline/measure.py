"""Arithmetic intensities of operators under the roofs of an H200 and of this machine, and the
memory traffic of three kernels and of one fused kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

import kernelwright.ops.elementwise.gelu  # pyright: ignore[reportUnusedImport]
import kernelwright.ops.norm.layer_norm  # pyright: ignore[reportUnusedImport]
import kernelwright.ops.reduce.softmax  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import Case, Scalar, TensorSpec, f32, i32
from kernelwright.dispatch import ladder
from kernelwright.emulator.dissect import SECTOR, Dissected
from kernelwright.machine import clock
from kernelwright.workbench import inspection
from kernelwright.workbench.bench import roofs
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
    shown,
)
from kernelwright.workbench.records import records
from kernelwright.workbench.records.records import REFERENCE_MACHINE
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("fused.cu")
SMALL, LARGE, BLOCK = 4096, 1 << 26, 256
COPIED = 128 << 20  # bytes copied to measure the roof of this machine
FUSED = {
    "swiglu": ("PyTorch's operators", "kw.swiglu"),
    "gelu(x)": ("an operator a kernel", "kw.gelu"),
    "layer_norm, residual, dropout, gelu": ("four kernels", "one kernel"),
}
LOW, HIGH, CELLS = 2**-3, 2**13, 64  # intensities of the picture, and its cells
WORK = {
    "gelu, 2^28": ("gelu", "268435456-bf16-approximate=none"),
    "softmax, 16384 x 4096": ("softmax", "16384x4096-bf16-dim=-1"),
    "layer_norm, 16384 x 4096": ("layer_norm", "16384x4096-bf16-eps=1e-05-weight=same"),
}
PRODUCTS = (64, 512, 4096)  # rows and columns of the matrices


@dataclass(frozen=True)
class Work:
    name: str
    bytes: int
    flops: int

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes


def measure() -> Measured:
    memory = recorded.record("roofs", "roof:r1w1", "2048MiB").gbps or 0.0
    product = recorded.record("roofs", "roof:matmul", "8192x8192x8192-bf16")
    compute = product.flops / records.median(product.cold) / 1e3  # GFLOP/s
    work = [*(_work(*w) for w in WORK.items()), *map(_product, PRODUCTS)]
    calls = _calls(SMALL)
    launches = launching.counted(calls)
    tables = (
        Table(
            "roofs",
            "Roofs of an H200",
            ("machine", "memory, GB/s", "bf16 products, TFLOP/s", "ridge, FLOP/byte"),
            (("H200", memory, compute / 1e3, compute / memory),),
            RECORD,
        ),
        Table(
            "work",
            "Arithmetic intensity in bfloat16, and the least time on an H200",
            ("work", "MB", "MFLOP", "FLOP/byte", "least, µs", "limited by"),
            tuple(_row(w, memory, compute) for w in work),
            COMPUTED,
        ),
        Table(
            "kernels",
            f"max(0, a x + b) of {SMALL:,} floats",
            ("kernel", "bytes read and written"),
            (
                *((c.name, _traffic(launches[c.name])) for c in calls),
                ("the three", sum(_traffic(launches[c.name]) for c in calls[:3])),
            ),
            EMULATOR,
        ),
        Table(
            "records",
            "Fused operators on an H200",
            ("formula", "MB apart", "MB fused", "µs apart", "µs fused", "times faster"),
            tuple(_fused(name, *pair) for name, pair in FUSED.items()),
            RECORD,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (
                ("intensity", _product(1024).intensity),
                ("share", 100 * _traffic(launches["fused"]) / _three(launches)),
            ),
            COMPUTED,
        ),
    )
    return Measured(tables, _picture(work, memory, compute))


def here(device: torch.device) -> tuple[Table, ...]:
    kind = "bf16" if device.type == "cuda" else "f32"
    rule = clock.QUICK if device.type == "cuda" else clock.StoppingRule(3, 5, 0.1, 0.5, 2.0)
    with clock.session(device):
        copies = roofs.roof_candidates("r1w1", COPIED, device)
        (product,) = roofs.product_candidates([kind], device)
        times = clock.measure([*copies, product], device, rule).times
    us = {name: records.median(t.cold) for name, t in times.items() if t.cold}
    gbps = COPIED / min(us[c.name] for c in copies if c.name in us) / 1e3
    n = roofs.product_size(device)
    gflops = 2 * n**3 / us[product.name] / 1e3
    rows = ((f"{n} x {n} x {n}, {kind}", gbps, gflops, gflops / gbps),)
    columns = ("product", "copy, GB/s", "product, GFLOP/s", "ridge, FLOP/byte")
    tables = [Table("here", "Roofs of this machine", columns, rows, HERE)]
    if device.type == "cuda":
        title = f"max(0, a x + b) of {LARGE:,} floats"
        tables.append(launching.times("times", title, _calls(LARGE), device))
    return tuple(tables)


def _work(name: str, of: tuple[str, str]) -> Work:
    operator = ladder(of[0]).operator
    case: Case = operator.case(of[1])
    cost = operator.cost(**inspection.specs_of(ladder(of[0]), case))
    return Work(name, cost.bytes, cost.flops)


def _product(n: int) -> Work:
    """A product moves three matrices of n x n elements of 2 bytes, and adds n^3 products."""
    return Work(f"product, n = {n}", 3 * 2 * n * n, 2 * n**3)


def _row(w: Work, memory: float, compute: float) -> tuple[Cell, ...]:
    by = {"memory": w.bytes / memory / 1e3, "arithmetic": w.flops / compute / 1e3}
    limit = max(by, key=by.__getitem__)
    return w.name, w.bytes / 1e6, w.flops / 1e6, w.intensity, by[limit], limit


def _calls(n: int) -> list[Call]:
    x = torch.linspace(-1, 1, n)
    two, half = f32(2.0), f32(0.5)
    kernels = {
        "scale": ((two,), 2 * x),
        "add": ((half,), x + 0.5),
        "relu": ((), x.relu()),
        "fused": ((two, half), (2 * x + 0.5).relu()),
    }
    return [_call(name, x, scalars, right) for name, (scalars, right) in kernels.items()]


def _call(name: str, x: torch.Tensor, scalars: tuple[Scalar, ...], right: torch.Tensor) -> Call:
    n = x.numel()
    return Call(
        name, SOURCE, name, (n // BLOCK, 1, 1), (BLOCK, 1, 1), ("x", "y", *scalars, i32(n)),
        {"x": x}, {"y": TensorSpec.contiguous((n,), torch.float32)}, {"y": right}, bytes=8 * n,
    )  # fmt: skip


def _traffic(launch: Dissected) -> int:
    return SECTOR * sum(a.sectors for a in launch.accesses)


def _three(launches: dict[str, Dissected]) -> int:
    return sum(_traffic(launches[name]) for name in ("scale", "add", "relu"))


def _fused(case: str, apart: str, fused: str) -> tuple[Cell, ...]:
    timed = {
        r.rung: r for r in records.load(REFERENCE_MACHINE, "fusion") if r.case == case and r.cold
    }
    a, b = timed[apart], timed[fused]
    us = records.median(a.cold), records.median(b.cold)
    return case, a.bytes / 1e6, b.bytes / 1e6, *us, us[0] / us[1]


def _picture(work: list[Work], memory: float, compute: float) -> Picture:
    step = math.log2(HIGH / LOW) / CELLS
    across = [(math.log2(x / LOW) / step / CELLS, f"{x:,}") for x in (1, 10, 100, 1000)]
    at = [LOW * 2 ** (step * (i + 0.5)) for i in range(CELLS)]
    lowest = math.log2(memory * LOW)
    span = math.log2(compute) - lowest
    heights = [(math.log2(min(memory * i, compute)) - lowest) / span for i in at]
    up = [((math.log2(1e3 * t) - lowest) / span, str(t)) for t in (1, 10, 100)]
    axes = strips.Axes(across, up, "arithmetic intensity, FLOP/byte")
    most = f"{compute / 1e3:,.0f} TFLOP/s"
    drawn = [strips.Strip("the roof, TFLOP/s", heights, most, tall=150, axes=axes)]
    for w in work:
        mark = min(CELLS - 1, max(0, int(math.log2(w.intensity / LOW) / step)))
        limit = "arithmetic" if memory * w.intensity > compute else "memory"
        cells = [float(i == mark) for i in range(CELLS)]
        words = f"{shown(w.intensity)} FLOP/byte, {limit}"
        drawn.append(strips.Strip(w.name, cells, words, "store", axes=strips.Axes(across)))
    return Picture(
        "The roofline of an H200, in bfloat16",
        (
            "The roof is the rate that memory allows, up to that of matrix products. Both axes are "
            f"logarithmic; from left to right, {LOW:g} to {HIGH:,} FLOP/byte.",
            "Brown: work, at its FLOP/byte on the same axis, and what limits it.",
        ),
        tuple(drawn),
    )
