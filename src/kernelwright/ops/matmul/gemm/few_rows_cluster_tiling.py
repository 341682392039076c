"""How the rungs of few_rows/clustered.cuh cut a product, and which products they take. Imports no
kernel language.

A cluster of blocks shares k; a block keeps its part of x in shared memory, beside a ring of steps
of the weight for each warp and the sums that come from the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.contract import Config, Gpu
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import no_clusters

from .few_rows_tiling import (
    MOST,
    fits_linear_tensor_cores,
    fits_tensor_cores,
    power_of_two,
    sides,
)

STATIC = 256  # bytes of shared memory of a block that are not dynamic, at most
STAGES = (12, 8, 6, 5, 4, 3)  # steps of a ring, the most that fit
IN_FLIGHT = 98_304  # bytes of rings of a multiprocessor: more do not add to DRAM's rate
DEPTHS = {4: 256, 8: 128, 16: 64}  # kDepth of a step, by bits of an element: 128 bytes


def tile(groups: int, along_n: int, along_k: int, cluster: int, resident: int, **more) -> Config:
    """A config: 16-row groups of a warp, warps along the weight's rows and along k, blocks of a
    cluster and of a multiprocessor."""
    return {"groups": groups, "along_n": along_n, "along_k": along_k, "cluster": cluster,
            "resident": resident, **more}  # fmt: skip


CONFIGS = (
    tile(2, 1, 8, 1, 1),
    tile(2, 2, 4, 2, 1),
    tile(2, 2, 4, 4, 1),
    tile(2, 4, 2, 8, 1),
)
WGMMA_CONFIGS = (tile(1, 8, 1, 8, 1), tile(1, 8, 1, 4, 1), tile(1, 4, 1, 4, 1))


@dataclass(frozen=True)
class Split:
    """Template arguments of clustered.cuh and what follows from them.

    Attributes:
        depth: of k in a step. blocks: of 8 rows of x. stages: steps of a ring. threads: of a block. grid: blocks.
        rings, boxed, shared: bytes of dynamic shared memory where the rings and the sums from the
            cluster begin, and in all.
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
        sizes = (
            self.blocks,
            c["groups"],
            c["along_n"],
            c["along_k"],
            c["cluster"],
            self.stages,
            c.get("hint", 0),
        )
        return f"few_rows::Split<{', '.join(map(str, sizes))}>"


def clusters_of(gpu: Gpu, cluster: int) -> int:
    """How many clusters run at a time with one block on a multiprocessor. A cluster lies within one
    of eight parts of the GPU."""
    return gpu.sms // cluster if cluster <= 2 else 8 * (gpu.sms // 8 // cluster)


def rows_of(config: Config) -> int:
    return 16 * config["groups"] * config["along_n"]


def split_of(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split:
    """With the last config, whose clusters are largest, where a block of the given one does not
    hold its part of x."""
    found = _split(gpu, config, m, n, k, bits) or _split(gpu, CONFIGS[-1], m, n, k, bits)
    assert found is not None, (config, m, n, k, bits)
    return found


def _split(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split | None:
    """None if a block does not hold its part of x beside a ring of three steps."""
    depth = config.get("depth", DEPTHS[bits])
    return _held(gpu, config, n, k, bits, depth, cdiv(m, 8), m)


def wgmma_split_of(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split:
    """With the first config, whose clusters are largest, where a block does not hold its part."""
    given = m, n, k, bits
    found = wgmma_split(gpu, config, *given) or wgmma_split(gpu, WGMMA_CONFIGS[0], *given)
    assert found is not None, (config, m, n, k, bits)
    return found


def wgmma_split(gpu: Gpu, config: Config, m: int, n: int, k: int, bits: int) -> Split | None:
    """The same for wgmma: 16, 32 or 64 rows of x, of one group a step."""
    blocks = max(2, power_of_two(cdiv(m, 8)))
    return _held(gpu, config, n, k, bits, 128, blocks, 8 * blocks)


def _held(
    gpu: Gpu, config: Config, n: int, k: int, bits: int, depth: int, blocks: int, held: int
) -> Split | None:
    """With `held` rows of x in shared memory."""
    rows, cluster, resident = rows_of(config), config["cluster"], config["resident"]
    warps = config["along_n"] * config["along_k"]
    tiles, steps = cdiv(n, rows), cdiv(cdiv(k, depth), cluster)
    clusters = min(tiles, clusters_of(gpu, cluster) * resident)
    stage = warps * config["groups"] * 16 * (depth * bits // 8 + (depth // 32 if bits < 16 else 0))
    of_x = steps * depth * 2 * held
    turns = min(2, cdiv(tiles, max(clusters, 1)))
    boxed = config["along_k"] * rows * (8 * blocks + 2) * 4 * turns
    room = (gpu.shared_per_block + 1024) // resident - 1024 - STATIC - of_x - boxed
    enough = max(3, cdiv(config.get("flight", IN_FLIGHT) // resident, stage))
    fitting = [s for s in STAGES if s * stage <= room and (s <= enough or s == 3)]
    if not fitting:
        return None
    stages = fitting[0]
    at_boxed = of_x + stages * stage
    return Split(config, depth, blocks, stages, 32 * warps, clusters * cluster, of_x, at_boxed,
                 at_boxed + boxed)  # fmt: skip


def choose_split(gpu: Gpu, m: int, n: int, k: int, bits: int) -> Config | None:
    """The config whose largest share of the weight is smallest, of those that fit; of equal ones
    the first, whose clusters are smallest."""
    best, least = None, 0
    for config in CONFIGS:
        split = _split(gpu, config, m, n, k, bits)
        if split is None:
            continue
        clusters = max(split.grid // config["cluster"], 1)
        share = cdiv(cdiv(n, rows_of(config)), clusters) * rows_of(config) / config["cluster"]
        if best is None or share < least * 0.97:
            best, least = config, share
    return best


def fits(gpu, a, b, tf32=False):
    if why := no_clusters(gpu) or fits_tensor_cores(gpu, a, b, tf32):
        return why
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return held(gpu, of.x.shape[0], *of.weight.shape, 16)


def fits_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    if why := no_clusters(gpu) or fits_linear_tensor_cores(gpu, *args):
        return why
    return held(gpu, x.shape[0], *weight.shape, 16)


def held(gpu: Gpu, m: int, n: int, k: int, bits: int) -> str | None:
    """Why a multiprocessor does not hold an eighth of x."""
    if choose_split(gpu, m, n, k, bits) is None:
        return f"{m} rows of {k}: an eighth is more than a multiprocessor holds"
    return None


def choose(gpu, a, b, tf32=False):
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return choose_split(gpu, of.x.shape[0], *of.weight.shape, 16)


def choose_linear(gpu, x, weight, **others):
    return choose_split(gpu, x.shape[0], *weight.shape, 16)
