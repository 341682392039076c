"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, log2, other_dtype

# vecs: pairs of vectors that a thread has in flight
ATOMICS = ({"block": 256, "vecs": 4, "blocks_per_sm": 4},)
BLOCKS = (
    {"block": 256, "vecs": 4, "blocks_per_sm": 4},
    {"block": 512, "vecs": 4, "blocks_per_sm": 2},
    {"block": 512, "vecs": 2, "blocks_per_sm": 4},
)
THREADS = ({"block": 256},)


def fits(gpu, x, **tensors):
    return other_dtype({"x": x, **tensors}, of="x")


def fits_atomics(gpu, x, other):
    if x.dtype == torch.float32:
        return "x: only 16-bit dtypes are supported"
    return fits(gpu, x, other=other)


def order(gpu, **specs):
    return ("cuda_last_block",)


def order_backward(gpu, **specs):
    return ("cuda_vec16",)


def bucket(x, **tensors):
    """Key of a call in the tuned table: dtype and number of elements by powers of two."""
    return f"{kind(x.dtype)}/{log2(x.numel())}"
