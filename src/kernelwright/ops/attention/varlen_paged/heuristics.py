"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind
from kernelwright.ops.attention.paged.heuristics import fits as fits_paged

MOST = 2**31 - 1  # blocks of a grid
CONFIGS = (
    {"rows": 16, "cols": 64, "warps": 4, "stages": 3},
    {"rows": 64, "cols": 64, "warps": 4, "stages": 3},
    {"rows": 128, "cols": 64, "warps": 8, "stages": 3},
)


def fits(gpu, q, k, v, table, lengths, k_scale, v_scale, **others):
    """As kernels of `paged_attention`, on a grid of tiles."""
    if why := fits_paged(gpu, q, k, v, table, lengths, others["scale"], k_scale, v_scale):
        return why
    blocks = (q.shape[0] + table.shape[0] + 1) * q.shape[1]
    return f"{blocks} blocks exceed the size of a grid" if blocks > MOST else None


def choose(gpu, q, k, table, **others):
    """The least rows that hold the queries of a sequence, if all have as many."""
    queries = cdiv(q.shape[0], max(table.shape[0], 1))
    rows = queries * (q.shape[1] // k.shape[2])
    return CONFIGS[0 if rows <= 16 else 1 if rows <= 256 else 2]


def order(gpu, **args):
    return ()


def bucket(q, k, table, left, capped, split, **more):
    sizes = (q.shape[0], table.shape[0], table.shape[1] * k.shape[1])
    powers = "/".join(str(next_power_of_2(max(n, 1))) for n in sizes)
    options = f"{next_power_of_2(left + 1)}{'/cap' if capped else ''}{f'/{split}' if split else ''}"
    heads = f"{q.shape[2]}/{q.shape[1] // max(k.shape[2], 1)}"
    return f"{kind(q.dtype)}/{kind(k.dtype)}/{heads}/{k.shape[1]}/{powers}/{options}"
