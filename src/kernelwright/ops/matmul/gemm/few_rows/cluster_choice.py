"""Which products the rungs of clustered.cuh support, and with which config. Imports no
kernel language."""

from __future__ import annotations

from kernelwright.contract import Config, Gpu
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import no_clusters
from kernelwright.contract.symbolic_int import fixed

from .cluster_tiling import (
    WIDEST,
    Split,
    held_split,
    held_wgmma,
    rows_of,
    tile,
)
from .tiling import MOST, fits_linear_tensor_cores, fits_tensor_cores, sides

CONFIGS = (
    tile(1, 1, 16, 1, 1, ahead=128),
    tile(1, 2, 4, 1, 1, ahead=128),
    tile(2, 8, 1, 1, 1, ahead=128),
    tile(2, 2, 4, 1, 2, ahead=128, short=True),
    tile(2, 4, 2, 2, 2, ahead=128, short=True),
)
WGMMA_CONFIGS = (
    tile(1, 8, 1, 8, 2, ahead=128),
    tile(1, 12, 1, 4, 1, ahead=128),
    tile(1, 8, 1, 4, 1, ahead=128),
    tile(1, 4, 1, 8, 2, ahead=128),
)
#: If the shares of two configs differ by less than this factor, the earlier config is chosen; by
#: bits per element. Large tiles convert integers to operands at a lower cost.
ALIKE = {4: 0.85, 8: 0.85, 16: 0.97}
ALIKE_WGMMA = 0.95


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


def fits_wgmma(gpu, a, b, tf32=False):
    if why := no_wgmma(gpu) or fits_tensor_cores(gpu, a, b, tf32):
        return why
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return wgmma_held(gpu, of.x.shape[0], *of.weight.shape, 16)


def fits_wgmma_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    if why := no_wgmma(gpu) or fits_linear_tensor_cores(gpu, *args):
        return why
    return wgmma_held(gpu, x.shape[0], *weight.shape, 16)


def no_wgmma(gpu: Gpu) -> str | None:
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    return None


def wgmma_held(gpu: Gpu, m: int, n: int, k: int, bits: int) -> str | None:
    """Why a multiprocessor cannot hold an eighth of x, for 16, 32 or 64 rows; None if it can."""
    if held_wgmma(gpu, WIDEST, m, n, k, bits) is None:
        return f"{m} rows of {k}: an eighth is more than a multiprocessor holds"
    return None


def held(gpu: Gpu, m: int, n: int, k: int, bits: int) -> str | None:
    """Why a multiprocessor cannot hold an eighth of x; None if it can."""
    if held_split(gpu, WIDEST, m, n, k, bits) is None:
        return f"{m} rows of {k}: an eighth is more than a multiprocessor holds"
    return None


def choose(gpu, a, b, tf32=False):
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return choose_split(gpu, of.x.shape[0], *of.weight.shape, 16)


def choose_linear(gpu, x, weight, **others):
    return choose_split(gpu, x.shape[0], *weight.shape, 16)


def choose_wgmma(gpu, a, b, tf32=False):
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return choose_wgmma_split(gpu, of.x.shape[0], *of.weight.shape, 16)


def choose_wgmma_linear(gpu, x, weight, **others):
    return choose_wgmma_split(gpu, x.shape[0], *weight.shape, 16)


def choose_split(gpu: Gpu, m: int, n: int, k: int, bits: int) -> Config:
    """If configs are nearly equal, small tiles are best for 16-bit weights, large ones for
    integers."""
    first = CONFIGS if bits == 16 else CONFIGS[2:] + CONFIGS[:2]
    m, n, k = fixed(m), fixed(n), fixed(k)
    candidates = [(c, held_split(gpu, c, m, n, k, bits)) for c in first]
    return _least(gpu, n, k, candidates, ALIKE[bits])


def choose_wgmma_split(gpu: Gpu, m: int, n: int, k: int, bits: int) -> Config:
    """Blocks of four warps are used only if the first config does not fit."""
    m = fixed(m)
    candidates = [(c, held_wgmma(gpu, c, m, n, k, bits)) for c in WGMMA_CONFIGS]
    if candidates[0][1] is not None:
        candidates = [(c, split) for c, split in candidates if c["along_n"] > 4]
    return _least(gpu, n, k, candidates, ALIKE_WGMMA)


def _least(
    gpu: Gpu, n: int, k: int, candidates: list[tuple[Config, Split | None]], alike: float
) -> Config:
    """The config with the fewest rows of the weight per multiprocessor, in units of rows of all
    k."""
    best, least = candidates[-1][0], 0.0
    for config, split in candidates:
        if split is None:
            continue
        tiles, clusters = cdiv(n, rows_of(config)), max(split.grid // config["cluster"], 1)
        rows = cdiv(tiles, clusters) * cdiv(split.grid, gpu.sms) * rows_of(config)
        steps = max(cdiv(cdiv(k, split.depth), config["cluster"]), 1)
        share = rows / config["cluster"] * max(1.0, config["along_k"] / steps)
        if least == 0.0 or share < least * alike:
            best, least = config, share
    return best
