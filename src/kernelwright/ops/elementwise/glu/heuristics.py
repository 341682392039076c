"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import kind, log2, off_boundary, other_dtype

from .tiling import rows_of

ROWS_CONFIGS = ({"block": 2048, "num_warps": 4}, {"block": 1024, "num_warps": 4})
VEC16_CONFIGS = (
    {"block": 256, "unroll": 2, "stream": True},
    {"block": 128, "unroll": 1, "stream": False},
    {"block": 256, "unroll": 2, "stream": False},
    {"block": 512, "unroll": 1, "stream": False},
)


def fits(gpu, approximate=None, **tensors):
    """Requirements of every kernel."""
    return other_dtype(tensors, of="gate")


def fits_rows(gpu, approximate=None, **tensors):
    rows, cols, _ = rows_of(tensors.values())
    programs = rows * cdiv(cols, ROWS_CONFIGS[-1]["block"])
    if programs >= 2**31:
        return f"{programs} tiles are more than the programs of a grid"
    return fits(gpu, **tensors)


def fits_vec16(gpu, approximate=None, **tensors):
    if rows_of(tensors.values())[0] > 1:
        return "rows with gaps between them, or of different strides"
    return off_boundary(tensors) or fits(gpu, **tensors)


def fits_rows16(gpu, approximate=None, **tensors):
    _, cols, strides = rows_of(tensors.values())
    width = 16 // tensors["gate"].itemsize
    if cols >= 2**31:
        return f"a row of {cols} elements exceeds 32-bit indices"
    if cols % width:
        return f"a row of {cols} elements is not a multiple of 16 bytes"
    for name, stride in zip(tensors, strides, strict=True):
        if stride % width:
            return f"{name}: a row stride of {stride} elements is not a multiple of 16 bytes"
    return off_boundary(tensors) or fits(gpu, **tensors)


def choose_vec16(gpu, **tensors):
    """One vector per thread in small blocks, without the streaming hint: the fastest at nearly all
    sizes and dtypes that were timed (data/tuned)."""
    return VEC16_CONFIGS[1]


def order(gpu, **args):
    return ("cuda_vec16", "cuda_rows16", "triton_rows")


def bucket(gate, up, approximate=None, gy=None):
    """Key of a call in the tuned table: formula, dtype, flat or rows, log2 of the elements."""
    tensors = [t for t in (gy, gate, up) if t is not None]
    flat = "flat" if rows_of(tensors)[0] == 1 else "rows"
    formula = approximate or "silu"
    return f"{formula}/{kind(gate.dtype)}/{flat}/{log2(gate.numel())}"
