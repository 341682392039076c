"""Blocks of the rungs that split keys on tensor cores (paged/split/attend.cuh)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelwright.contract import Scratch, TensorSpec
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE

CONFIGS = (
    {"warps": 4, "keys": 16, "stages": 4, "blocks": 2},
    {"warps": 8, "keys": 16, "stages": 4, "blocks": 1},
    {"warps": 4, "keys": 32, "stages": 3, "blocks": 1},
)
MOST_SPLITS = 64
WIDEST = 256  # elements of a head
_MOST_GROUPS = 4
# Elements of 8 queries' sums that fit a warp's registers, with tiles of 16 keys and otherwise.
_ROOM, _LESS_ROOM = 512, 384
_RESERVED = 1024  # bytes of shared memory that the hardware takes for a block
_TURNS = 4  # of the GPU, after which no split makes the last one much shorter
_START = 64  # keys that a warp would read while a block starts and ends
_FEW_TOKENS = 2**14  # keys of all items; fewer are read while a large block starts
_ELEMENTS = {torch.float8_e4m3fn: "E4M3", torch.float8_e5m2: "E5M2", torch.int8: "Int8"}


def choose(gpu, items: int, tokens: int, cache, d: int):
    """Two small blocks per multiprocessor if there are more items than multiprocessors, few keys in
    total, or narrow heads; one large block otherwise and for 8-bit caches."""
    if cache.itemsize == 1:
        return CONFIGS[1]
    if items > gpu.sms or d <= 64 or fixed(items) * next_power_of_2(tokens) < _FEW_TOKENS:
        return CONFIGS[0]
    return CONFIGS[1]


@dataclass(frozen=True)
class Blocks:
    """`groups` of 8 queries in each of `chunks` blocks that have the same keys; `splits` blocks
    share the keys of a sequence's head."""

    name: str  # of split::Shape
    warps: int
    groups: int
    chunks: int
    splits: int
    shared: int
    dv: int
    items: int

    def scratch(self) -> dict[str, Scratch]:
        """Of parts; one element where there are none."""
        parts = self.items * self.splits * 8 * self.groups if self.splits > 1 else 1
        return {
            "sums": Scratch(TensorSpec.contiguous((parts, self.dv), torch.float32)),
            "states": Scratch(TensorSpec.contiguous((parts, 2), torch.float32)),
            "arrived": Scratch(TensorSpec.contiguous((self.items,), torch.int32), zero=True),
        }


def unfit(caches, down: int, tokens: int) -> str | None:
    """Why caches of keys and values do not fit; `down`: the dimension of a head's rows; `tokens`:
    of the longest sequence."""
    itemsize, d, dv = caches[0].itemsize, caches[0].shape[3], caches[1].shape[3]
    if max(d, dv) > WIDEST:
        return f"a head of {max(d, dv)} elements is wider than {WIDEST}"
    if tokens >= 2**31 - 2**16:  # a warp looks some tiles ahead
        return f"{tokens} tokens do not fit an int32"
    if any(t.stride(down) * t.itemsize >= 2**27 for t in caches):
        return "rows of a cache are 2^27 bytes apart or more, too far for an int32 of 16 rows"
    if d == 0 or dv == 0 or d * itemsize % 16 or dv * itemsize % 16:
        return f"heads of {d} and {dv} elements are not whole vectors of 16 bytes"
    return None


def blocks_of(gpu, config, dtype, cache, group: int, d: int, dv: int, pairs: int, tokens: int):
    """Blocks for `pairs` of a sequence and a head of the cache, each of up to `tokens` keys."""
    size, d, dv = cache.itemsize, fixed(d), fixed(dv)
    wide = _rounded(max(d, dv), 64)
    eights = fixed(cdiv(group, 8))
    held = _ROOM if config["keys"] == 16 and wide <= 128 else _LESS_ROOM
    chunks = cdiv(eights, min(_MOST_GROUPS, max(1, held // wide)))
    groups = cdiv(eights, chunks)
    room = (gpu.shared_per_block + _RESERVED) // config["blocks"] - _RESERVED
    slot = config["keys"] // 16 * _tile_bytes(size, d, dv)
    warps = config["warps"]
    while warps > 1 and 2 * slot * warps > room:
        warps //= 2
    stages = min(config["stages"], max(2, room // (slot * warps)))
    pitch = _rounded(dv, 128 if dv * size > 64 else 64, size) + 4
    merged = 4 * warps * 8 * groups * (pitch + 2)
    elements = _ELEMENTS.get(cache, f"Plain<{CTYPE[dtype]}>")
    numbers = (d, dv, groups, warps, stages, config["keys"])
    name = f"split::Shape<{CTYPE[dtype]}, split::{elements}, {', '.join(map(str, numbers))}>"
    items = pairs * chunks
    slots = gpu.sms * config["blocks"]
    splits = 1
    if items <= _TURNS * slots:  # a plan for each such number, and for tokens by powers of two
        splits = splits_of(slots, fixed(items), next_power_of_2(tokens), warps * config["keys"])
    return Blocks(
        name, warps, groups, chunks, splits, max(stages * slot * warps, merged), dv, items
    )


def splits_of(slots: int, items: int, tokens: int, keys: int) -> int:
    """The splits that finish first: each time that all `slots` of the GPU are taken lasts as long
    as a block has keys, and a while to start."""
    most = min(MOST_SPLITS, max(1, cdiv(tokens, keys)))

    def length(splits: int) -> int:
        return cdiv(items * splits, slots) * (cdiv(cdiv(tokens, keys), splits) * keys + _START)

    return min(range(1, most + 1), key=length)


def _tile_bytes(size: int, d: int, dv: int) -> int:
    """Of 16 keys and values in shared memory, as split::Shape has them."""
    narrow = 8 if dv * size <= 64 else 16
    return 32 * (32 * cdiv(d * size, 64) + 4 * narrow * cdiv(dv * size, 8 * narrow))


def _rounded(n: int, to: int, size: int = 1) -> int:
    """Elements of `size` bytes that fill whole pieces of `to` bytes."""
    return cdiv(n * size, to) * to // size
