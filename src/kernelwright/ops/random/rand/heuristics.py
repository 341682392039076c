"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract.eligibility import kind, log2, off_boundary, unsupported_dtype

from .grid import BLOCK

MOST_STEPS = 65_535  # rows of a grid of blocks

THREADS = ({"block": BLOCK},)
# stream: stores with an evict-first hint
VEC16 = (
    {"block": 128, "stream": True},
    {"block": 128, "stream": False},
    {"block": 256, "stream": True},
)
PROBABLE = ({"block": 128}, {"block": 256})


def fits(gpu, state, size, threads, dtype, p=None):
    if threads % BLOCK:
        return f"threads: {threads} is no multiple of {BLOCK}"
    if threads >= 2**32:
        return f"threads: {threads} are numbered in 64 bits"
    return unsupported_dtype(dtype, "dtype")


def fits_steps(gpu, state, size, threads, dtype, p=None):
    n = math.prod(size)
    if n > MOST_STEPS * 4 * threads:
        return f"{n} elements take {threads} threads more than {MOST_STEPS} steps"
    return fits(gpu, state, size, threads, dtype)


def fits_bernoulli(gpu, state, p):
    if not p.is_contiguous():
        return "p: not contiguous"
    return unsupported_dtype(p.dtype, "p")


def fits_bernoulli_vec16(gpu, state, p):
    return off_boundary({"p": p}) or fits_bernoulli(gpu, state, p)


def choose_vec16(gpu, state, size, threads, dtype, p=None):
    """Results that do not fit in the L2 cache are streamed; float32 in larger blocks."""
    if math.prod(size) * dtype.itemsize <= gpu.l2_bytes:
        return VEC16[1]
    return VEC16[2 if dtype.itemsize == 4 else 0]


def order(gpu, **specs):
    return "cuda_vec16", "cuda_quad"


def order_bernoulli(gpu, **specs):
    return "cuda_vec16", "cuda_thread"


def bucket(state, size, threads, dtype, p=None):
    """Key of a call in the tuned table: dtype and number of elements by powers of two."""
    return f"{kind(dtype)}/{log2(math.prod(size))}"


def bucket_bernoulli(state, p):
    return f"{kind(p.dtype)}/{log2(p.numel())}"
