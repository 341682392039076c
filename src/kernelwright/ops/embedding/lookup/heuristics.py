"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

INTEGERS = (torch.int32, torch.int64)

# tile: elements of a program's tile; slice: bytes of each row that are looked up before the next
# slice; keep: the table has an evict-last hint in L2
TRITON_CONFIGS = (
    {"tile": 4096, "num_warps": 4, "slice": 4096, "keep": True},
    {"tile": 4096, "num_warps": 4, "slice": 2048, "keep": False},
    {"tile": 8192, "num_warps": 8, "slice": 256, "keep": True},
    {"tile": 8192, "num_warps": 8, "slice": 512, "keep": True},
    {"tile": 8192, "num_warps": 8, "slice": 128, "keep": True},
)
# tile: elements of a program's tile
TRITON_ATOMICS_CONFIGS = ({"tile": 2048, "num_warps": 4}, {"tile": 4096, "num_warps": 8})
VEC16_CONFIGS = (
    {"block": 256, "unroll": 4},
    {"block": 256, "unroll": 8},
    {"block": 128, "unroll": 1},
)
# slice: bytes of each row that are looked up before the next slice
SLICED_CONFIGS = (
    {"block": 256, "unroll": 4, "slice": 256},
    {"block": 256, "unroll": 4, "slice": 128},
    {"block": 256, "unroll": 4, "slice": 512},
)
# tile: positions per block; chunk: vectors of their rows
ATOMICS_CONFIGS = (
    {"block": 256, "tile": 64, "chunk": 32},
    {"block": 128, "tile": 128, "chunk": 16},
)
SORTED_CONFIGS = (
    {"block": 256, "unroll": 4, "piece": 256},
    {"block": 256, "unroll": 4, "piece": 64},
    {"block": 128, "unroll": 8, "piece": 256},
)


def fits(gpu, weight=None, gy=None, *, indices, num_weights, **rest):
    """Requirements of every kernel."""
    name, x = ("weight", weight) if gy is None else ("gy", gy)
    if why := unsupported_dtype(x.dtype, name):
        return why
    if indices.dtype not in INTEGERS:
        return f"indices: {indices.dtype} is not int32 or int64"
    if not indices.is_contiguous():
        return "indices: not contiguous"
    return None


def fits_sliced(gpu, weight, indices, num_weights, padding_idx=-1):
    shortest = 2 * min(config["slice"] for config in SLICED_CONFIGS)
    if weight.shape[1] * weight.itemsize < shortest:
        return f"weight: rows of less than {shortest} bytes are too short to slice"
    if weight.shape[1] * weight.itemsize > 65_535 * shortest // 2:
        return "weight: a row has more slices than the blocks of a grid"
    if vector(weight) * weight.itemsize < 16:
        return "weight: its rows are not aligned to 16 bytes"
    return fits(gpu, weight, indices=indices, num_weights=num_weights)


def fits_sorted(gpu, gy, indices, num_weights, padding_idx=-1):
    if max(num_weights, indices.numel()) >= 2**31 - 1:
        return "2^31 or more rows or lookups"
    return fits(gpu, gy=gy, indices=indices, num_weights=num_weights)


def vector(rows) -> int:
    """Elements per instruction: at most 16 bytes of a row."""
    _, cols, stride = rows_view(rows.shape, rows.stride())
    return math.gcd(16 // rows.itemsize, rows.align // rows.itemsize, cols, stride)


def choose_triton(gpu, weight, indices, **rest):
    """Keep the table in L2 if rows are looked up again; in slices, if it does not fit in L2."""
    if indices.numel() <= weight.shape[0]:
        return TRITON_CONFIGS[1]
    return TRITON_CONFIGS[0 if weight.nbytes <= gpu.l2_bytes else 2]


def choose_vec16(gpu, weight, indices, **rest):
    """A small number of vectors needs all SMs, a large number needs bytes in flight."""
    vectors = indices.numel() * weight.shape[1] * weight.itemsize // 16
    if vectors < 256 * 4 * gpu.sms:
        return VEC16_CONFIGS[2]
    return VEC16_CONFIGS[0]


def choose_sliced(gpu, weight, indices, **rest):
    """A third of L2: each half of it may hold its own copy, and the result passes through it."""
    for config in (SLICED_CONFIGS[2], SLICED_CONFIGS[0]):
        if weight.shape[0] * config["slice"] <= gpu.l2_bytes // 3:
            return config
    return SLICED_CONFIGS[1]


def order(gpu, weight, indices, **rest):
    """If the table does not fit in L2 and rows are looked up more than once, finding the positions
    of each row first is worth its cost for long rows."""
    again = weight.nbytes > gpu.l2_bytes and indices.numel() > weight.shape[0]
    if again and weight.shape[1] * weight.itemsize >= 8192:
        return ("cuda_scatter", "triton_rows", "cuda_vec16")
    return ("triton_rows", "cuda_vec16")


def order_backward(gpu, **args):
    return ("cuda_slots", "cuda_sorted")


def bucket(weight, indices, **rest):
    return _bucket(weight, indices, weight.shape[0])


def bucket_backward(gy, indices, num_weights, **rest):
    return _bucket(gy, indices, num_weights)


def _bucket(x, indices, rows):
    """Key of a call in the tuned table: dtype, then row length, look-ups, rows by powers of two."""
    sizes = (x.shape[-1], indices.numel(), rows)
    return "/".join((kind(x.dtype), *(str(next_power_of_2(s)) for s in sizes)))
