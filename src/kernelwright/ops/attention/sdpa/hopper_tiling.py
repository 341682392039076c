"""Which calls the rungs for Hopper's tensor cores support, and their configs. Imports no kernel
language.

The numbers of a config: a tile is `cols` keys; `stages` tiles of keys and of values are in flight.
"""

from __future__ import annotations

from kernelwright.contract import Config, TensorMap, TensorSpec
from kernelwright.contract.arithmetic import cdiv

from .heuristics import fits_mma

BOX = 64  # columns of a box: 128 bytes
GROUP_ROWS, ROWS = 64, 128  # queries per warp group, and per block

WGMMA_CONFIGS = (
    {"cols": 128, "stages": 2},
    {"cols": 160, "stages": 2},
)
#: `groups`: number of warp groups that multiply.
PERSISTENT_CONFIGS = (
    {"cols": 128, "groups": 2},
    {"cols": 160, "groups": 2},
    {"cols": 128, "groups": 3},
    {"cols": 96, "groups": 3},
)
#: Stages of the kernel of gk and gv (`queries`) and of the kernel of gq (`keys`), whose tiles have
#: `cols` keys.
BACKWARD_CONFIGS = ({"queries": 3, "keys": 2, "cols": 96}, {"queries": 2, "keys": 3, "cols": 64})


def wide(d: int, dv: int) -> int:
    """The head size of the kernel for heads of d and dv elements, which are padded with zeros."""
    return max(64, 128 * cdiv(max(d, dv), 128)) if max(d, dv) > 64 else 64


def persistent_tile(config: Config, d: int, causal: bool) -> tuple[int, int]:
    """(warp groups, keys per tile): three groups have too few registers for heads of 128, and for
    128 keys with a causal mask."""
    if config["groups"] == 2 or d > 64:
        return 2, config["cols"]
    return 3, min(config["cols"], 96) if causal else config["cols"]


def rows_map(name: str, t: TensorSpec, rows: int) -> TensorMap:
    """The map of (B, H, rows, columns), in boxes of `rows` rows and 64 columns."""
    strides = tuple(
        16 if n == 1 else s * t.itemsize
        for n, s in zip(reversed(t.shape[:3]), reversed(t.strides[:3]), strict=True)
    )
    return TensorMap(name, t.dtype, tuple(reversed(t.shape)), strides, (BOX, rows, 1, 1))


def fits(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    return fits_mma(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more)


def choose_persistent(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    """Three warp groups if exponentials take as long as products and tiles have 128 keys; larger
    tiles for long sequences."""
    narrow = wide(q.shape[3], v.shape[3]) == 64
    if causal:
        return PERSISTENT_CONFIGS[0]
    return PERSISTENT_CONFIGS[2 if narrow else 1 if k.shape[2] >= 2048 else 0]
