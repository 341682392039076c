"""Persistent blocks of the rungs that stream keys through bulk copies (paged/split/stream.cuh)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelwright.contract import Scratch, TensorSpec
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE

from ._split_keys import _ELEMENTS as ELEMENTS

CONFIGS = ({"warps": 8, "blocks": 1}, {"warps": 4, "blocks": 2})
_MOST_GROUPS = 4  # of 8 queries
_ROOM = 256  # elements of 8 queries' sums that fit a warp's registers
_MOST_STAGES = 8
_RESERVED = 1024  # bytes of shared memory that the hardware takes for a block
_BARRIERS = 256  # bytes of barriers, at most


@dataclass(frozen=True)
class Blocks:
    """`groups` of 8 queries of each of `heads` heads of the cache are a block's at a time; a head
    has `chunks` of such groups."""

    name: str  # of split::Stage
    threads: int
    heads: int
    chunks: int
    queries: int
    blocks: int
    shared: int
    dv: int
    items: int

    def scratch(self) -> dict[str, Scratch]:
        """Of two pieces for each block."""
        parts = 2 * self.blocks * self.queries
        return {
            "sums": Scratch(TensorSpec.contiguous((parts, self.dv), torch.float32)),
            "states": Scratch(TensorSpec.contiguous((parts, 2), torch.float32)),
            "arrived": Scratch(TensorSpec.contiguous((self.items,), torch.int32), zero=True),
        }


def no_bulk_copies(gpu) -> str | None:
    if gpu.capability < (9, 0):
        return "compute capability {}.{} has no bulk copies".format(*gpu.capability)
    return None


def layout(k, v, row: int, head: int) -> str | None:
    """Whether the rows of each head are contiguous in both caches, or the heads of each row;
    `row`, `head`: their dimensions."""
    for name, dim in (("rows", row), ("heads", head)):
        if all(t.shape[dim] == 1 or t.stride(dim) == t.shape[3] for t in (k, v)):
            return name
    return None


def blocks_of(gpu, config, dtype, cache, of: str, heads: int, group: int, d: int, dv: int, b: int):
    """Blocks for b sequences, `heads` heads of the cache and `group` queries of each."""
    size, d, dv, heads = cache.itemsize, fixed(d), fixed(dv), fixed(heads)
    eights = fixed(cdiv(group, 8))
    wide = cdiv(max(d, dv), 64) * 64
    most = min(eights, _MOST_GROUPS, max(1, _ROOM // wide))
    producers = 4 // config["blocks"]
    room = (gpu.shared_per_block + _RESERVED) // config["blocks"] - _RESERVED - _BARRIERS
    for warps, each in _candidates(config["warps"], most):
        chunks = cdiv(eights, each)
        groups = cdiv(eights, chunks)
        if groups * wide >= _ROOM and (size > 1 or wide > 128) and warps > config["warps"] // 2:
            continue  # 12 warps of a multiprocessor have 168 registers each, 8 have 255
        together = (
            1 if of == "rows" else max(n for n in (1, 2, 4, 8) if n <= warps and heads % n == 0)
        )
        teams = warps // together
        run = 2 * teams if of == "rows" else 1
        strips = 16 * teams // run
        slot = strips * (
            _pitch(together * run * d * size, 16) + _pitch(together * run * dv * size, 32)
        )
        merged = 4 * warps * 8 * groups * (_sums(dv, size) + 2)
        stages = min(_MOST_STAGES, (room - merged) // slot)
        if stages >= 2:
            break
    else:
        raise ValueError(f"k: heads of {d} and {dv} elements do not fit shared memory")
    elements = ELEMENTS.get(cache, f"Plain<{CTYPE[dtype]}>")
    numbers = (d, dv, groups, warps, stages, 16)
    shape = f"split::Shape<{CTYPE[dtype]}, split::{elements}, {', '.join(map(str, numbers))}>"
    return Blocks(
        f"split::Stage<{shape}, {together}, {run}, {producers}>",
        32 * (warps + producers),
        together,
        chunks,
        together * 8 * groups,
        gpu.sms * config["blocks"],
        stages * slot + merged + 16 * stages + 16,
        dv,
        b * (heads // together) * chunks,
    )


def _candidates(warps: int, groups: int):
    """Half of the warps, then fewer queries at a time, which read the cache more often; in the end
    any number of warps of which two stages fit."""
    each = groups
    while each:
        yield warps, each
        yield max(warps // 2, 1), each
        each //= 2
    while warps > 2:
        warps //= 2
        yield warps // 2, 1


def _pitch(n: int, behind: int) -> int:
    return n + (behind - n) % 128


def _sums(dv: int, size: int) -> int:
    """Elements of a query's sums: whole pieces of 128 bytes of values, or of 64."""
    piece = 64 if dv * size <= 64 else 128
    return cdiv(dv * size, piece) * piece // size
