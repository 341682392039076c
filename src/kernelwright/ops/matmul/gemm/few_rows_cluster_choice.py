"""Which products the rungs of few_rows/clustered.cuh take, with which config. Imports no kernel
language."""

from __future__ import annotations

from kernelwright.contract import Config, Gpu
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import no_clusters

from .few_rows_cluster_tiling import WIDEST, held_split, held_wgmma, rows_of, tile, widest
from .few_rows_tiling import MOST, fits_linear_tensor_cores, fits_tensor_cores, sides

CONFIGS = (
    tile(2, 1, 8, 1, 1),
    tile(2, 2, 4, 2, 1),
    tile(2, 2, 4, 4, 1),
    tile(2, 4, 2, 8, 1),
    WIDEST,
)
WGMMA_CONFIGS = (WIDEST, tile(1, 8, 1, 4, 1), tile(1, 4, 1, 4, 1))


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
    """Why a multiprocessor does not hold an eighth of x, of 16, 32 or 64 rows."""
    if held_wgmma(gpu, WIDEST, m, n, k, bits) is None:
        return f"{m} rows of {k}: an eighth is more than a multiprocessor holds"
    return None


def held(gpu: Gpu, m: int, n: int, k: int, bits: int) -> str | None:
    """Why a multiprocessor does not hold an eighth of x."""
    if held_split(gpu, widest(bits), m, n, k, bits) is None:
        return f"{m} rows of {k}: an eighth is more than a multiprocessor holds"
    return None


def choose(gpu, a, b, tf32=False):
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    return choose_split(gpu, of.x.shape[0], *of.weight.shape, 16)


def choose_linear(gpu, x, weight, **others):
    return choose_split(gpu, x.shape[0], *weight.shape, 16)


def choose_split(gpu: Gpu, m: int, n: int, k: int, bits: int) -> Config:
    """The config whose largest share of the weight is smallest, of those that fit; of almost equal
    ones the first, whose clusters are smallest."""
    best, least = WIDEST, 0.0
    for config in CONFIGS:
        split = held_split(gpu, config, m, n, k, bits)
        if split is None:
            continue
        clusters = max(split.grid // config["cluster"], 1)
        share = cdiv(cdiv(n, rows_of(config)), clusters) * rows_of(config) / config["cluster"]
        if least == 0.0 or share < least * 0.97:
            best, least = config, share
    return best
