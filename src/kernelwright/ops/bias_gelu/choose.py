"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.choosing import kind, log2, off_boundary, other_dtype

from .shape import rows_of

ROWS_CONFIGS = (
    {"rows": 4, "cols": 512, "num_warps": 4, "programs": 8},
    {"rows": 2, "cols": 1024, "num_warps": 4, "programs": 16},
)
VEC16_CONFIGS = (
    {"block": 128, "unroll": 2, "stream": True},
    {"block": 128, "unroll": 1, "stream": False},
)
# down * 32 threads a block, each with unroll vectors of gy and of x in flight; registers leave room
# for 4 blocks of 8 * 32 an SM, and several rounds of blocks end more evenly than one
STRIPS_CONFIGS = (
    {"down": 8, "unroll": 2, "stream": True, "blocks_per_sm": 16},
    {"down": 8, "unroll": 2, "stream": True, "blocks_per_sm": 4},
    {"down": 8, "unroll": 1, "stream": False, "blocks_per_sm": 4},
)


def fits(gpu, bias, approximate, **tensors):
    """What every kernel asks."""
    return other_dtype({**tensors, "bias": bias}, of="x")


def fits_vec16(gpu, bias, approximate, **tensors):
    x = tensors["x"]
    width = 16 // x.itemsize
    if x.shape[-1] >= 2**31:
        return f"a row of {x.shape[-1]} elements has an index of more than 32 bits"
    if x.shape[-1] % width:
        return f"a row of {x.shape[-1]} elements is no whole number of 16-byte vectors"
    for name, t in tensors.items():
        if rows_of(t)[2] % width:
            return f"{name}: rows {rows_of(t)[2]} elements apart begin off a 16-byte boundary"
    return off_boundary({**tensors, "bias": bias}) or fits(gpu, bias, approximate, **tensors)


def choose_vec16(gpu, x, **rest):
    """What outgrows the L2 streams, with two vectors in flight; below, every SM needs work."""
    return VEC16_CONFIGS[0 if 2 * x.nbytes > gpu.l2_bytes else 1]


def choose_strips(gpu, x, **rest):
    """Small tensors need every SM, and few rows a thread."""
    return STRIPS_CONFIGS[0 if 3 * x.nbytes > gpu.l2_bytes else 2]


def order(gpu, **args):
    return ("cuda_vec16", "triton_rows")


def bucket(x, bias, approximate, **rest):
    """Key of a call in the tuned table: formula, dtype, log2 of columns and of elements."""
    return f"{approximate}/{kind(x.dtype)}/{log2(x.shape[-1])}/{log2(x.numel())}"
