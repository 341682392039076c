"""How the kernels of clustered.cuh divide a product. Imports no kernel language.

The blocks of a cluster divide k. A block keeps in shared memory its part of x, a ring of steps of
the weight for each warp, and the sums that it receives from the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.contract import Config, Gpu
from kernelwright.contract.arithmetic import cdiv

from ..hopper.tiling import clusters_at_once
from .tiling import power_of_two

STATIC = 256  # maximum bytes of static shared memory per block
STAGES = (12, 8, 6, 5, 4, 3)  # steps per ring: the largest number that fits
IN_FLIGHT = 98_304  # bytes of all rings of a multiprocessor
DEPTHS = {4: 256, 8: 128, 16: 64}  # kDepth of a step, by bits per element: 128 bytes
SHORT = {**DEPTHS, 4: 128}
GROUP = 128  # elements along k that share a scale
REGISTERS = 65_536  # per multiprocessor
OF_WGMMA = {2: 128, 4: 168, 8: 208}  # registers per thread, by blocks of 8 rows of x
FOR_BYTES = 40  # more for 8-bit weights, whose values are converted through float32


def tile(
    groups: int, along_n: int, along_k: int, cluster: int, resident: int, **more: int | bool
) -> Config:
    """A config: 16-row groups per warp, warps along the weight's rows and along k, blocks per
    cluster and per multiprocessor. `more`: `short`, whether a step with 4 bits is 64 bytes of a row
    instead of 128; `ahead`, bytes that the L2 cache fetches per access."""
    return {"groups": groups, "along_n": along_n, "along_k": along_k, "cluster": cluster,
            "resident": resident, **more}  # fmt: skip


#: Used if a block of another config cannot hold its part of x: the largest clusters.
WIDEST = tile(1, 8, 1, 8, 1, short=True)


@dataclass(frozen=True)
class Split:
    """Template arguments of clustered.cuh, and values that follow from them.

    Attributes:
        depth: elements along k in a step. blocks: of 8 rows of x. stages: steps per ring.
        threads: per block. grid: number of blocks.
        rings, boxed: bytes of dynamic shared memory before the rings, and before the sums from the
            cluster. shared: its size in bytes.
    """

    config: Config
    depth: int
    blocks: int
    stages: int
    threads: int
    grid: int
    rings: int
    boxed: int
    shared: int

    @property
    def name(self) -> str:
        """few_rows::Split of this."""
        c = self.config
        sizes = (self.blocks, c["groups"], c["along_n"], c["along_k"], c["cluster"], self.stages)
        return f"few_rows::Split<{', '.join(map(str, (*sizes, c.get('ahead', 0))))}>"


def rows_of(config: Config) -> int:
    return 16 * config["groups"] * config["along_n"]


def _registers(config: Config) -> int:
    """Of a thread."""
    return REGISTERS // (32 * config["along_n"] * config["along_k"] * config["resident"])


def split_of(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split:
    """The division by `config`, or by WIDEST if that does not fit."""
    split = held_split(gpu, config, m, n, k, bits) or held_split(gpu, WIDEST, m, n, k, bits)
    assert split is not None, (config, m, n, k, bits)
    return split


def held_split(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split | None:
    """None if a block cannot hold its part of x and a ring of three steps."""
    if bits < 16 and config["groups"] * cdiv(m, 8) > 4 and _registers(config) <= 128:
        return None  # too few registers for the sums of a group and of all groups
    depth = (SHORT if config.get("short") else DEPTHS)[bits]
    return _held(gpu, config, n, k, bits, depth, cdiv(m, 8), m)


def wgmma_split_of(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split:
    """The division by `config`, or by WIDEST if that does not fit."""
    given = m, n, k, bits
    split = held_wgmma(gpu, config, *given) or held_wgmma(gpu, WIDEST, *given)
    assert split is not None, (config, m, n, k, bits)
    return split


def held_wgmma(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split | None:
    """As `held_split` for wgmma: 16, 32 or 64 rows of x, the shortest steps."""
    blocks = max(2, power_of_two(cdiv(m, 8)))
    if _registers(config) < OF_WGMMA[blocks] + (FOR_BYTES if bits == 8 else 0):
        return None
    return _held(gpu, config, n, k, bits, SHORT[bits], blocks, 8 * blocks)


def _held(
    gpu: Gpu, config: Config, n: int, k: int, bits: int, depth: int, blocks: int, held: int
) -> Split | None:
    """The division with `held` rows of x in shared memory."""
    rows, cluster, resident = rows_of(config), config["cluster"], config["resident"]
    warps = config["along_n"] * config["along_k"]
    tiles, steps = cdiv(n, rows), cdiv(cdiv(k, depth), cluster)
    clusters = min(tiles, clusters_at_once(gpu, cluster) * resident)
    of_row = depth * bits // 8 + (depth // GROUP * 4 if bits < 16 else 0)
    stage = warps * config["groups"] * 16 * of_row
    of_x = steps * depth * 2 * held
    turns = min(2, cdiv(tiles, max(clusters, 1)))
    boxed = config["along_k"] * rows * (8 * blocks + 2) * 4 * turns
    room = (gpu.shared_per_block + 1024) // resident - 1024 - STATIC - of_x - boxed
    enough = max(3, cdiv(IN_FLIGHT // resident, stage))
    fitting = [s for s in STAGES if s * stage <= room and (s <= enough or s == 3)]
    if not fitting:
        return None
    at_boxed = of_x + fitting[0] * stage
    return Split(config, depth, blocks, fitting[0], 32 * warps, clusters * cluster, of_x, at_boxed,
                 at_boxed + boxed)  # fmt: skip
