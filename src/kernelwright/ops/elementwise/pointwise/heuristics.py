"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, other_dtype

from .tiling import broadcast

THREAD_CONFIGS = ({"block": 256},)
GRID2D_CONFIGS = ({"x": 32, "y": 8},)
BLOCK_CONFIGS = ({"block": 2048, "num_warps": 4}, {"block": 512, "num_warps": 4})
VEC16_CONFIGS = (
    {"block": 256, "unroll": 2, "stream": True},
    {"block": 128, "unroll": 1, "stream": False},
)
# down: rows of 32 threads per block, each with unroll vectors of gy and of x in flight
STRIPS_CONFIGS = (
    {"down": 8, "unroll": 2, "stream": True, "blocks_per_sm": 16},
    {"down": 8, "unroll": 2, "stream": True, "blocks_per_sm": 4},
    {"down": 8, "unroll": 1, "stream": False, "blocks_per_sm": 4},
)


def fits_dtype(gpu, **tensors):
    """Requirements of every kernel."""
    return other_dtype(tensors, of=next(iter(tensors)))


def fits_flat(gpu, **tensors):
    first, shape = next((n, t.shape) for n, t in tensors.items())
    for name, t in tensors.items():
        if t.shape != shape:
            return f"{name}: shape {t.shape} is not {first}'s {shape}; the rung does not broadcast"
    return fits_dtype(gpu, **tensors)


def fits_vec16(gpu, **tensors):
    for name, t in tensors.items():
        if t.align < 16:
            return f"{name}: its memory is not aligned to 16 bytes"
    return fits_flat(gpu, **tensors)


def is_row(x, other) -> bool:
    """Whether `other` is a single row of x's length, for all rows of x."""
    return other.numel() == other.shape[-1] == x.shape[-1] and x.is_contiguous()


def fits_grid2d(gpu, **tensors):
    x, other = tensors.get("x"), tensors.get("other")
    if other is None or x.shape == other.shape or not is_row(x, other):
        return fits_flat(gpu, **tensors)
    return fits_dtype(gpu, **tensors)


def fits_broadcast(gpu, x, other):
    shared = broadcast(x, other)
    if isinstance(shared, str):
        return shared
    for name, t, along in zip(("x", "other"), (x, other), shared.operands, strict=True):
        if along.kind == "kFlat" and t.align < 16:
            return f"{name}: its memory is not aligned to 16 bytes"
    return fits_dtype(gpu, x=x, other=other)


def fits_broadcast_backward(gpu, gy, x, other):
    if x.shape == other.shape:
        return "x and other have the same shape: nothing is broadcast"
    if not is_row(x, other) or not gy.is_contiguous():
        return f"other {other.shape} is not a row of x {x.shape}, or gy is not contiguous"
    if x.shape[-1] >= 2**31:
        return f"a row of {x.shape[-1]} elements exceeds 32-bit indices"
    return fits_dtype(gpu, gy=gy, x=x, other=other)


def choose_strips(gpu, x, **rest):
    """Small tensors need all SMs, and few rows per thread."""
    return STRIPS_CONFIGS[0 if 3 * x.nbytes > gpu.l2_bytes else 2]


def choose_block(gpu, **tensors):
    """The largest programs of which each SM still gets several."""
    n = next(iter(tensors.values())).numel()
    return BLOCK_CONFIGS[0] if n >= 2048 * 16 * gpu.sms else BLOCK_CONFIGS[1]


def choose_vec16(gpu, **tensors):
    """One vector per thread in small blocks, without the streaming hint: the fastest at nearly all
    sizes and dtypes that were timed (data/tuned)."""
    return VEC16_CONFIGS[1]


def order(gpu, **tensors):
    """For a broadcast PyTorch's operator, unless `tune` has found a faster rung."""
    if not _alike(tensors):
        return ()
    return ("cuda_vec16", "triton_block", "cuda_thread")


def bucket(**tensors):
    """Key of a call in the tuned table: dtypes, kind of broadcast, log2 of the largest tensor."""
    kinds = dict.fromkeys(kind(t.dtype) for t in tensors.values())
    largest = max(t.numel() for t in tensors.values())
    alike = "same" if _alike(tensors) else "broadcast"
    return f"{'+'.join(kinds)}/{alike}/{max(largest, 1).bit_length() - 1}"


def _alike(tensors) -> bool:
    first, *rest = (t.shape for t in tensors.values())
    return all(shape == first for shape in rest)
