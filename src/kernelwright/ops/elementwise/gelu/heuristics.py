"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, log2, off_boundary, other_dtype

BLOCK_CONFIGS = (
    {"block": 1024, "num_warps": 4},
    {"block": 2048, "num_warps": 4},
    {"block": 4096, "num_warps": 8},
    {"block": 512, "num_warps": 4},
    {"block": 256, "num_warps": 4},
)
THREAD_CONFIGS = ({"block": 256}, {"block": 512})
VEC16_CONFIGS = (
    {"block": 256, "unroll": 2, "stream": False},
    {"block": 256, "unroll": 2, "stream": True},
    {"block": 256, "unroll": 4, "stream": False},
    {"block": 512, "unroll": 4, "stream": True},
    {"block": 256, "unroll": 1, "stream": False},
    {"block": 128, "unroll": 1, "stream": False},
)


def fits_flat(gpu, approximate, **tensors):
    """Requirements of every kernel."""
    return other_dtype(tensors, of="x")


def fits_vec16(gpu, approximate, **tensors):
    return off_boundary(tensors) or fits_flat(gpu, approximate, **tensors)


def fits_numba(gpu, approximate, **tensors):
    x = tensors["x"]
    if any(t.dtype != torch.float32 for t in tensors.values()):
        return "float32 only: Numba has no bfloat16, and no erf or tanh of float16"
    if x.numel() >= 2**31:
        return "Numba's thread index has 32 bits"
    return None


def choose_block(gpu, x, **rest):
    """The largest programs of which each SM still gets several."""
    return BLOCK_CONFIGS[1] if x.numel() >= 2048 * 16 * gpu.sms else BLOCK_CONFIGS[3]


def choose_vec16(gpu, **tensors):
    """One vector per thread in small blocks, without the streaming hint: the fastest at nearly all
    sizes and dtypes that were timed (data/tuned)."""
    return VEC16_CONFIGS[5]


def order(gpu, **specs):
    return ("cuda_vec16", "triton_block", "cuda_thread")


def bucket(x, approximate, **rest):
    """Key of a call in the tuned table: formula, dtype, log2 of the number of elements."""
    return f"{approximate}/{kind(x.dtype)}/{log2(x.numel())}"
