"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, log2, off_boundary, other_dtype

from .tiling import rows_of

ROWS_CONFIGS = (
    {"rows": 4, "cols": 512, "num_warps": 4, "programs": 8},
    {"rows": 2, "cols": 1024, "num_warps": 4, "programs": 16},
)
VEC16_CONFIGS = (
    {"block": 128, "unroll": 2, "stream": True},
    {"block": 128, "unroll": 1, "stream": False},
    {"block": 128, "unroll": 2, "stream": False},
)
# down * 32 threads per block, each with `stages` vectors of gy and of x in flight: in 16 bits the
# smallest number that was timed is fastest; in float32 it depends on the shape
STRIPS_CONFIGS = (
    {"down": 16, "stages": 2, "blocks_per_sm": 1},
    {"down": 4, "stages": 3, "blocks_per_sm": 3},
    {"down": 16, "stages": 2, "blocks_per_sm": 32},
)


def fits(gpu, bias, approximate, **tensors):
    """Requirements of every kernel."""
    return other_dtype({**tensors, "bias": bias}, of="x")


def fits_vec16(gpu, bias, approximate, **tensors):
    x = tensors["x"]
    width = 16 // x.itemsize
    if x.shape[-1] >= 2**31:
        return f"a row of {x.shape[-1]} elements exceeds 32-bit indices"
    if x.shape[-1] % width:
        return f"a row of {x.shape[-1]} elements is not a multiple of 16 bytes"
    for name, t in tensors.items():
        if rows_of(t)[2] % width:
            return f"{name}: a row stride of {rows_of(t)[2]} elements is not a multiple of 16 bytes"
    return off_boundary({**tensors, "bias": bias}) or fits(gpu, bias, approximate, **tensors)


def fits_strips(gpu, x, **rest):
    rows = rows_of(x)[0]
    if rows >= 2**31:
        return f"{rows} rows exceed 32-bit indices"
    return fits_vec16(gpu, x=x, **rest)


def choose_vec16(gpu, x, **rest):
    """Two vectors in flight if a tensor does not fit in L2; smaller tensors need all SMs. The
    streaming hint helps in 16 bits; in float32 it costs time or nothing, depending on the
    result's address."""
    if 2 * x.nbytes <= gpu.l2_bytes:
        return VEC16_CONFIGS[1]
    return VEC16_CONFIGS[2 if x.itemsize == 4 else 0]


def choose_strips(gpu, x, **rest):
    """In float32, tensors that do not fit in L2 finish more evenly in several waves of blocks."""
    return STRIPS_CONFIGS[2 if x.itemsize == 4 and 3 * x.nbytes > gpu.l2_bytes else 0]


def order(gpu, **args):
    return ("cuda_vec16", "triton_rows")


def bucket(x, bias, approximate, **rest):
    """Key of a call in the tuned table: formula, dtype, log2 of columns and of elements."""
    return f"{approximate}/{kind(x.dtype)}/{log2(x.shape[-1])}/{log2(x.numel())}"
