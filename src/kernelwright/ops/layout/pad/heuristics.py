"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import gcd
from kernelwright.contract.eligibility import kind, log2, unsupported_dtype

from .boxes import MOST, walk

THREADS = ({"block": 256},)
TRITON = ({"tile": 1024, "num_warps": 4},)
VEC16 = ({"block": 256, "unroll": 4}, {"block": 256, "unroll": 2})


def fits(gpu, x, pad, value=0.0):
    if len(walk(x, tuple(pad))) > MOST:
        return f"more than {MOST} dimensions that cannot be merged"
    return unsupported_dtype(x.dtype, "x")


def width(x, pad) -> int:
    """Elements per load: at most 16 bytes, all of them inside x or all outside."""
    *outer, row = walk(x, tuple(pad))
    if row.stride != 1 and row.inside > 1:
        return 1
    vector = gcd(16 // x.itemsize, x.align // x.itemsize, *row[:3])
    return gcd(vector, *(d.stride for d in outer if d.inside > 1))


def order(gpu, x, pad, value=0.0):
    return ("cuda_vec16",)


def bucket(x, pad, value=0.0):
    """Key of a call in the tuned table: dtype, elements per load, size."""
    return f"{kind(x.dtype)}/{width(x, pad)}/{log2(x.numel())}"
