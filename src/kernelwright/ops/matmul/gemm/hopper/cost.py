"""The cost of a product on an H200: microseconds of each config of the rungs for its tensor cores,
and of cuBLAS.

A launch takes a start, followed by waves of tiles, each of which takes the time of its slices along
k and of its epilogue; at least the time of its bytes in DRAM. A slice takes the slowest (a 6-norm)
of three: its products on the tensor cores, whose clock falls at the power limit; the bytes that the
multiprocessor receives; the bytes that its own copy engine requests. Rows of 128 bytes that
straddle two cache lines are requested twice, and those that begin off a 32-byte sector move one
sector more, which makes odd leading dimensions slow. cuBLAS is modeled as the best of such tiles
with constants of its own.

The constants are fitted to times of `FITTED_AGAINST`, and the choice is judged on shapes that were
not in the fit (benchmarks/matmul_model).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.operator import Config, Gpu

from .tiling import Matrix, clusters_at_once

SHARP = 6  # exponent of the norm: how sharply the slowest dominates
SHORT = 17.5e9  # multiplications: from here on the power limit matters
SLICE = 64
LINE, SECTOR = 128, 32  # bytes


@dataclass(frozen=True)
class Constants:
    start: float  # us: launch, first loads, last stores
    cluster: float  # us more if blocks wait for each other
    fast: float  # GHz that the tensor cores sustain for a moment
    slow: float  # and at the power limit
    port: float  # bytes per ns that a multiprocessor receives, its own loads and others'
    busy: float  # and over a long time
    feed: float  # bytes per ns of its own loads
    straddling: float  # fraction of time that a row takes longer if it straddles two lines
    off_sector: float  # and if it begins off a sector
    shared: float  # slices loaded for each other: blocks wait for the slowest
    out: float  # us to store 128 x 256 results
    hidden: float  # fraction of that for which ping-pong still waits
    together: float  # warp groups on one tile: idle between tiles, waiting for slices
    sums: float  # us to exchange 128 x 256 sums within a cluster
    dram: float  # bytes per ns


#: Where the constants were measured: cuBLAS is the library that this version of PyTorch brings.
FITTED_AGAINST = {
    "machine": "nvidia-h200",
    "driver": "580.159.04",
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "nvidia-cuda-nvrtc": "13.0.88",
}
OURS = Constants(
    start=3.121, cluster=0.122, fast=1.722, slow=1.463, port=159.9, busy=135.0, feed=153.5,
    straddling=1.218, off_sector=0.635, shared=1.052, out=1.410, hidden=0.281, together=0.998,
    sums=3.648, dram=4027.0,
)  # fmt: skip
CUBLAS = Constants(
    start=3.128, cluster=0.038, fast=2.007, slow=1.719, port=34213.0, busy=71.0, feed=184.4,
    straddling=0.747, off_sector=0.428, shared=1.150, out=1.971, hidden=0.912, together=1.030,
    sums=48.0, dram=3905.0,
)  # fmt: skip


def _tiles(*shapes: tuple[int, int, int, int]) -> tuple[Config, ...]:
    return tuple({"bm": m, "bn": n, "rows": r, "cols": c} for m, n, r, c in shapes)


#: The tiles that cuBLAS is assumed to choose from: ping-pong, cooperative, divided k.
CUBLAS_TILES = {
    "pingpong": _tiles((128, 128, 2, 1), (128, 192, 2, 1), (128, 64, 2, 1), (128, 160, 2, 1)),
    "persistent": _tiles(
        *((128, 256, 2, 1), (256, 128, 1, 2), (256, 128, 2, 1), (192, 192, 2, 1)),
        *((256, 160, 2, 1), (128, 224, 2, 1), (64, 64, 1, 1), (64, 96, 1, 1)),
        *((64, 128, 2, 1), (64, 192, 2, 1), (64, 256, 1, 2)),
    ),
    "split": tuple(
        {"bm": m, "bn": n, "split": s}
        for m, n, s in ((128, 128, 2), (128, 128, 4), (128, 256, 2), (64, 64, 4), (64, 128, 2))
    ),
}


@dataclass(frozen=True)
class Product:
    """C = A B for a batch, described by the memory layout of the operands."""

    a: Matrix
    b: Matrix

    @property
    def multiplications(self) -> int:
        return self.a.width * self.b.width * self.a.k * self.a.batch

    @property
    def bytes(self) -> int:
        m, n, k = self.a.width, self.b.width, self.a.k
        return (m * k + n * k + m * n) * self.a.batch * self.a.dtype.itemsize


def cublas_us(gpu: Gpu, p: Product) -> float:
    """Microseconds of cuBLAS's product."""
    return min(us(gpu, kind, c, p, CUBLAS) for kind, cs in CUBLAS_TILES.items() for c in cs)


def us(gpu: Gpu, rung: str, c: Config, p: Product, of: Constants = OURS) -> float:
    """Microseconds of a config of a rung; infinite if its blocks do not all fit at once."""
    high, wide, split = c.get("rows", 1), c.get("cols", 1), c.get("split", 1)
    at_once = clusters_at_once(gpu, high * wide * split)
    rows, cols = cdiv(p.a.width, c["bm"]), cdiv(p.b.width, c["bn"])
    tiles = cdiv(rows, high) * cdiv(cols, wide) * p.a.batch
    part = c["bm"] * c["bn"] / (128 * 256)
    slices, out = cdiv(cdiv(p.a.k, SLICE), split), of.out * part
    tile = slices * _slice(rung, c, p, of)
    waves = cdiv(tiles, at_once)
    if split > 1:
        busy = tile + out + of.sums * part if waves == 1 else math.inf
    elif "pingpong" in rung:
        busy = waves * (tile + of.hidden * out) + out
    else:
        busy = waves * (tile + out)
    start = of.start + (of.cluster if high * wide * split > 1 else 0.0)
    return start + _slowest(busy, p.bytes / of.dram / 1000)


def _slice(rung: str, c: Config, p: Product, of: Constants) -> float:
    """Microseconds for 64 elements along k of a tile."""
    bm, bn, high, wide = c["bm"], c["bn"], c.get("rows", 1), c.get("cols", 1)
    short = 1 / (1 + (p.multiplications / SHORT) ** 2)
    alone = high * wide == 1
    from_a = _received(p.a, min(bm, p.a.width) if alone else bm)
    from_b = _received(p.b, min(bn, p.b.width) if alone else bn)
    tensor = bm * bn / 32 / (of.slow + (of.fast - of.slow) * short)
    feed = (from_a / wide * _harder(p.a, bm, of) + from_b / high * _harder(p.b, bn, of)) / of.feed
    port = (from_a + from_b) / (of.busy + (of.port - of.busy) * short)
    ns = _slowest(tensor, feed, port)
    if not alone:
        ns *= of.shared
    return ns / 1000 * (1.0 if "pingpong" in rung else of.together)


def _received(of: Matrix, width: int) -> int:
    """Bytes of a slice; if the width is contiguous, in units of 64 columns."""
    return (width if of.k_major else cdiv(width, 64) * 64) * LINE


def _harder(operand: Matrix, width: int, of: Constants) -> float:
    """Factor by which loading an operand's rows of 128 bytes takes longer than aligned ones."""
    step = operand.stride * operand.dtype.itemsize
    straddling = 1 - math.gcd(step, LINE) / LINE
    if not operand.k_major and width % 64:  # every other tile begins within a line
        straddling = max(straddling, 0.5)
    return 1 + of.straddling * straddling + of.off_sector * (step % SECTOR > 0)


def _slowest(*times: float) -> float:
    if math.inf in times:
        return math.inf
    return sum(t**SHARP for t in times) ** (1 / SHARP)
