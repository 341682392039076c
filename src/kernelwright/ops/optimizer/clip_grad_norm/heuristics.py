"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract import is_dense
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

TRITON = ({"block": 4096, "num_warps": 8}, {"block": 8192, "num_warps": 8})
# vecs: vectors that a thread has in flight, where a chunk is what the threads of a block have in
# flight; resident: blocks per multiprocessor, which process one chunk after another
NORM = (
    {"block": 512, "vecs": 4, "resident": 3},
    {"block": 256, "vecs": 8, "resident": 4},
    {"block": 256, "vecs": 4, "resident": 6},
)
# a block scales a chunk in `rounds` rounds
CLIP = ({"block": 256, "vecs": 4, "rounds": 2}, {"block": 512, "vecs": 4, "rounds": 2})
ORDERS = ("1.0", "2.0", "inf")


def fits_norm(gpu, tensors, norm_type):
    if norm_type not in ORDERS:
        return f"norm_type: {norm_type} is not one of {', '.join(ORDERS)}"
    return _fits("tensors", tensors)


def fits_clip(gpu, grads, total_norm, max_norm):
    return _fits("grads", grads)


def _fits(name, tensors):
    """Requirements of kernels over lists: one dtype, and elements without gaps."""
    for k, t in enumerate(tensors):
        if why := unsupported_dtype(t.dtype, f"{name}[{k}]"):
            return why
        if t.dtype != tensors[0].dtype:
            return f"{name}[{k}] is {t.dtype}, {name}[0] is {tensors[0].dtype}"
        if not is_dense(t.shape, t.strides):
            return f"{name}[{k}] has gaps between its elements"
    return None


def choose_list(gpu, tensors, **others):
    """Large chunks as long as every multiprocessor gets several."""
    large, small = NORM[0], NORM[2]
    chunk = 16 * large["block"] * large["vecs"]  # bytes
    return large if sum(t.nbytes for t in tensors) >= 2 * gpu.sms * chunk else small


def order(gpu, **others):
    return ("cuda_list", "triton_list")


def bucket_norm(tensors, **others):
    return _bucket(tensors)


def bucket_clip(grads, **others):
    return _bucket(grads)


def _bucket(tensors):
    """Key of a call in the tuned table: dtype, elements and tensors by powers of two."""
    n = sum(t.numel() for t in tensors)
    return f"{kind(tensors[0].dtype)}/{next_power_of_2(n)}/{next_power_of_2(len(tensors))}"
