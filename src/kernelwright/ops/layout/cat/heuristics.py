"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract import rows_view
from kernelwright.contract.eligibility import kind, log2

from .spec import begins, given

SIZES = (1, 2, 4, 8)  # bytes of an element

THREADS = ({"block": 256},)
VEC16 = ({"block": 256, "unroll": 4}, {"block": 256, "unroll": 2})


def fits(gpu, x0, **more):
    if x0.itemsize not in SIZES:
        return f"x0: elements of {x0.itemsize} bytes are not supported"
    for name, x in more.items():
        if x is not None and x.dtype != x0.dtype:
            return f"{name}: {x.dtype} is not x0's {x0.dtype}"
    return None


def stride_of(x) -> int:
    return rows_view(x.shape, x.stride())[2]


def width(xs) -> int:
    """Elements per load: at most 16 bytes, aligned in every tensor, and never of two tensors in the
    result."""
    vector = 16 // xs[0].itemsize
    for x, begin in zip(xs, begins(xs), strict=False):
        vector = math.gcd(vector, x.align // x.itemsize, x.shape[-1], begin)
        if math.prod(x.shape[:-1]) > 1:
            vector = math.gcd(vector, stride_of(x))
    return vector


def order(gpu, **xs):
    """No rung: PyTorch is faster than all of them (records/nvidia-h200/cat.jsonl)."""
    return ()


def bucket(**xs):
    """Key of a call in the tuned table: dtype, elements per load, size."""
    tensors = given(xs)
    rows = math.prod(tensors[0].shape[:-1])
    return f"{kind(tensors[0].dtype)}/{width(tensors)}/{log2(rows * begins(tensors)[-1])}"
