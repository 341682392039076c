"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract.eligibility import kind, log2, other_dtype
from kernelwright.ops._divisor import MOST

THREADS = ({"block": 256},)
SHARED = ({"block": 256, "share": 4096}, {"block": 128, "share": 1024})
POINTS = 256  # along a dimension of a region, in shared memory
SAMPLES = 4


def fits(gpu, x, rois, size, scale, sampling, aligned):
    return other_dtype({"x": x, "rois": rois}, of="x")


def fits_shared(gpu, x, rois, size, scale, sampling, aligned):
    if not 0 < sampling <= SAMPLES:
        return f"sampling: not between 1 and {SAMPLES}"
    if max(size) * sampling > POINTS:
        return f"size: a region has more than {POINTS} points along a dimension"
    if math.prod(size) * x.shape[1] * x.shape[4] > MOST // 2:
        return "the results of a region exceed 32-bit indices"
    return fits(gpu, x, rois, size, scale, sampling, aligned)


def order(gpu, **specs):
    """The first that takes the call."""
    return "cuda_shared", "cuda_naive"


def bucket(x, rois, size, scale, sampling, aligned):
    """Key of a call in the tuned table: dtype, points, results."""
    results = rois.shape[0] * math.prod(size) * x.shape[1] * x.shape[4]
    return f"{kind(x.dtype)}/{sampling}/{log2(results)}"
