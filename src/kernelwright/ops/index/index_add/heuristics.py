"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype
from kernelwright.ops.embedding.lookup.heuristics import INTEGERS
from kernelwright.ops.embedding.lookup.heuristics_runs import SLOTS_CONFIGS

FEW = 4096  # added rows, up to which each may be compared with all others

# vec: floats per atomic addition
ATOMICS = ({"block": 256, "vec": 1}, {"block": 256, "vec": 4})
SMALL = ({"block": 128},)
VEC16 = ({"block": 256, "unroll": 4}, {"block": 256, "unroll": 1})
SLOTS = SLOTS_CONFIGS


def _fits(index, **rows):
    for name, t in rows.items():
        if why := unsupported_dtype(t.dtype, name):
            return why
    if index.dtype not in INTEGERS:
        return f"index: {index.dtype} is not int32 or int64"
    return None if index.is_contiguous() else "index: not contiguous"


def fits(gpu, index, x, source, alpha=1.0):
    if x.dtype != source.dtype:
        return f"source: {source.dtype} is not x's {x.dtype}"
    if max(x.shape[0], index.numel()) >= 2**31 - 1:
        return "2^31 rows"
    return _fits(index, x=x, source=source)


def fits_small(gpu, index, x, source, alpha=1.0):
    if index.numel() > FEW:
        return f"index: has more than {FEW} elements"
    return fits(gpu, index, x, source)


def fits_backward(gpu, gy, index, alpha=1.0):
    return _fits(index, gy=gy)


def vector(*rows) -> int:
    """Elements per instruction: at most 16 bytes of a row of each tensor."""
    width = 16 // rows[0].itemsize
    for t in rows:
        _, cols, stride = rows_view(t.shape, t.stride())
        width = math.gcd(width, t.align // t.itemsize, cols, stride)
    return width


def order(gpu, **specs):
    return ("cuda_ordered",)


def order_backward(gpu, **specs):
    return ("cuda_vec16",)


def bucket(index, x, source, alpha=1.0):
    return _bucket(x, index)


def bucket_backward(gy, index, alpha=1.0):
    return _bucket(gy, index)


def _bucket(x, index):
    """Key of a call in the tuned table: dtype, then row length, added rows, rows by powers of
    two."""
    sizes = (x.shape[1], index.numel(), x.shape[0])
    return "/".join((kind(x.dtype), *(str(next_power_of_2(s)) for s in sizes)))
