"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype
from kernelwright.ops.attention.paged.heuristics import BYTES

WIDEST, MOST = 256, 2**31 - 512
CONFIGS = (
    {"rows": 16, "cols": 64, "warps": 4, "stages": 3},
    {"rows": 64, "cols": 64, "warps": 4, "stages": 3},
    {"rows": 128, "cols": 64, "warps": 8, "stages": 3},
)


def fits(gpu, q, k, v, cu_q, table, lengths, **others):
    if why := unsupported_dtype(q.dtype, "q"):
        return why
    for name, t in (("k", k), ("v", v)):
        if t.dtype != q.dtype and t.dtype not in BYTES:
            return f"{name}: {t.dtype} is neither q's {q.dtype} nor of 8 bits"
        if t.dtype == torch.float8_e4m3fn and gpu.capability < (8, 9):
            return f"{name}: float8_e4m3fn needs compute capability 8.9"
        if t.shape[3] > 1 and t.stride(3) != 1:
            return f"{name}: its heads are not contiguous"
    if q.stride(2) != 1 and q.shape[2] > 1:
        return "q: its heads are not contiguous"
    for name, t in (("cu_q", cu_q), ("table", table), ("lengths", lengths)):
        if t.shape[-1] > 1 and t.stride(-1) != 1:
            return f"{name}: its rows are not contiguous"
    if max(q.shape[2], v.shape[3]) > WIDEST:
        return f"a head of {max(q.shape[2], v.shape[3])} elements is wider than {WIDEST}"
    if table.shape[1] * k.shape[1] >= MOST:
        return "the table's tokens do not fit an int32"
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
