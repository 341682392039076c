"""Which calls the rungs of cuda_dynamic.py support, and their configs. Imports no kernel language.

The numbers of a config: `groups` warp groups multiply; a tile is `cols` keys, of which `stages` are
in flight.
"""

from __future__ import annotations

from kernelwright.contract import Config

from .heuristics import fits_vectors
from .hopper_tiling import wide

WIDE = 256  # widest head
DYNAMIC_CONFIGS = (
    {"cols": 128, "groups": 2, "stages": 2},
    {"cols": 128, "groups": 3, "stages": 3},
    {"cols": 96, "groups": 3, "stages": 4},
)


def dynamic_tile(config: Config, d: int) -> tuple[int, int, int]:
    """(warp groups, keys per tile, stages): with heads of 128 three groups have too few registers,
    and shared memory has room for two stages of 128 keys."""
    if d > 64:
        return 2, 128, 2
    return config["groups"], config["cols"], config["stages"]


def wide_cols(causal: bool) -> int:
    """Keys per tile with heads of 256, two stages of which fit shared memory; with a causal mask
    80 would not fit registers."""
    return 64 if causal else 80


def choose_dynamic(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    """Three warp groups if exponentials take as long as products."""
    return DYNAMIC_CONFIGS[1 if wide(q.shape[3], v.shape[3]) == 64 else 0]


def fits_wide(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    if max(q.shape[3], v.shape[3]) <= WIDE // 2:
        return f"a head of {max(q.shape[3], v.shape[3])} elements needs no tile for {WIDE}"
    return fits_vectors(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p)
