"""How the kernels of stream.cuh divide a product, and which products they support. Imports
no kernel language."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.contract import Config, Gpu
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.symbolic_int import fixed

from ..few_rows.cluster_choice import no_wgmma
from ..few_rows.tiling import (
    MOST,
    Sides,
    fits_linear_tensor_cores,
    fits_tensor_cores,
    power_of_two,
    sides,
)
from ..hopper.tiling import clusters_at_once

STATIC = 512  # maximum bytes of static shared memory per block
MOST_STAGES = 12
ALIGNMENT = 1024  # of the ring, and bytes that this may take
SLICE, GROUP = 64, 128  # elements along k of a step, with 16 bits and with fewer
#: Fitted to 1,100 times of an H200 (records/nvidia-h200/measured/few_rows_products.txt).
#: Bytes per microsecond: from DRAM; from L2, of the weight and x; of the weight through one
#: multiprocessor with sixteen warps, by bits per element (integers are converted there).
DRAM, FROM_L2 = 4.5e6, 8.7e6
OF_MULTIPROCESSOR = {4: 2.78e4, 8: 4.06e4, 16: 1.2e5}
WARPS, COLUMNS = 0.49, 0.034  # how this rate falls with fewer warps, and with each 8 rows of x
OVERLAP = 0.18  # part of the second of three limits that adds to the longest
#: Microseconds of a launch; of a cluster's tile, and for each KB of its sums.
START, EXCHANGE, OF_SUMS = 2.6, 0.46, 0.063


def _config(groups: int, cluster: int, resident: int = 1) -> Config:
    """Warp groups that multiply, of 64 rows of the weight each; blocks per cluster and per
    multiprocessor."""
    return {"groups": groups, "cluster": cluster, "resident": resident}


CONFIGS = (
    _config(4, 1),
    _config(4, 2),
    _config(4, 4),
    _config(3, 1),
    _config(3, 3),
    _config(2, 1),
    _config(2, 2),
    _config(2, 4),
    _config(2, 1, 2),
    _config(2, 2, 2),
    _config(1, 1),
    _config(1, 2),
    _config(1, 4),
    _config(1, 1, 2),
    _config(1, 2, 2),
    _config(1, 4, 2),
)


@dataclass(frozen=True)
class Stream:
    """Template arguments of stream.cuh, and values that follow from them.

    Attributes:
        rows: of the weight in a tile. blocks: of 8 rows of x. stages: of the ring. steps: along k.
        grid: number of blocks. threads: per block. shared: bytes of dynamic shared memory.
    """

    config: Config
    rows: int
    blocks: int
    stages: int
    steps: int
    grid: int
    threads: int
    shared: int

    @property
    def name(self) -> str:
        """stream::Shape of this."""
        c = self.config
        return f"stream::Shape<{self.blocks}, {c['groups']}, {c['cluster']}, {self.stages}>"


def stream_of(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Stream:
    """The division of a product with a weight of n x k elements of `bits` bits."""
    groups, cluster, resident = config["groups"], config["cluster"], config["resident"]
    rows, depth = 64 * groups, SLICE if bits == 16 else GROUP
    blocks = max(1 if bits == 16 else 2, power_of_two(cdiv(m, 8)))
    stage = rows * depth * bits // 8 + 8 * blocks * depth * 2 + (rows * 4 if bits < 16 else 0)
    stage = cdiv(stage, ALIGNMENT) * ALIGNMENT
    received = rows * (8 * blocks + 2) * 4 if cluster > 1 else 0
    room = (gpu.shared_per_block + 1024) // resident - 1024 - STATIC - ALIGNMENT - received
    stages, tiles = min(MOST_STAGES, room // stage), cdiv(n, rows)
    grid = tiles * cluster if cluster > 1 else min(tiles, gpu.sms * resident)
    shared = stages * stage + received + ALIGNMENT
    return Stream(config, rows, blocks, stages, cdiv(k, depth), grid, 128 * groups + 32, shared)


def us(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> float:
    """The predicted time on an H200."""
    cluster, resident = config["cluster"], config["resident"]
    of = stream_of(gpu, config, m, n, k, bits)
    tiles, row = cdiv(n, of.rows), k * bits / 8
    at_once = clusters_at_once(gpu, cluster) * resident
    beside = min(resident, cdiv(tiles, at_once // resident))  # blocks of a multiprocessor
    part = cdiv(tiles, at_once) * beside * of.rows * row / cluster
    rate = OF_MULTIPROCESSOR[bits] * min(1.0, config["groups"] * beside / 4) ** WARPS
    of_x = tiles * 8 * of.blocks * k * 2
    limits = sorted(
        (n * row / DRAM, part * (1 + COLUMNS * of.blocks) / rate, (n * row + of_x) / FROM_L2)
    )
    sums = of.rows * 8 * of.blocks * 4 / 1000
    end = EXCHANGE + OF_SUMS * sums if cluster > 1 else 0.0
    return START + limits[-1] + OVERLAP * limits[-2] + end


def choose_config(gpu: Gpu, m: int, n: int, k: int, bits: int) -> Config:
    """The config with the least predicted time."""
    m, n, k = fixed(m), fixed(n), fixed(k)
    return min(CONFIGS, key=lambda c: us(gpu, c, m, n, k, bits))


def held(of: Sides) -> str | None:
    """Why the copy engine cannot load the rows of both operands."""
    for name, t in zip(of.names, (of.weight, of.x), strict=True):
        if 0 in t.shape:
            return f"{name}: is empty"
        if t.shape[0] > 1 and t.stride(0) < t.shape[1]:
            return f"{name}: its rows overlap"
    return None


def fits(gpu, a, b, tf32=False):
    if why := no_wgmma(gpu) or fits_tensor_cores(gpu, a, b, tf32):
        return why
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return held(of)


def fits_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    if why := no_wgmma(gpu) or fits_linear_tensor_cores(gpu, *args):
        return why
    return held(Sides(weight, x, ("weight", "x"), (1, weight.shape[0])))


def choose(gpu, a, b, tf32=False):
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return choose_config(gpu, of.x.shape[0], *of.weight.shape, 16)


def choose_linear(gpu, x, weight, **others):
    return choose_config(gpu, x.shape[0], *weight.shape, 16)
