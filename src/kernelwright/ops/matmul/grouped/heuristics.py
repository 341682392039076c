"""Which rung handles a grouped product, and its launch parameters. Imports no kernel language. The
numbers of the configs are those of the Hopper rungs of matmul (gemm/hopper/tiling.py)."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import kind
from kernelwright.ops.matmul.gemm.hopper.tiling import DTYPES, Matrix, matrix, transposed

MOST_GROUPS = 1024  # kMostGroups of cuda_wgmma.cu
TILE = 64  # kTile of cuda_mma.cu

CONFIGS = (
    {"bm": 128, "bn": 256, "stages": 3, "boxes": 4},
    {"bm": 128, "bn": 128, "stages": 5, "boxes": 2},
    {"bm": 64, "bn": 128, "stages": 8, "boxes": 2},
)


def fits_mma(gpu, a, b, offsets):
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        return f"{a.dtype} by {b.dtype}: not both bfloat16 or both float16"
    if not offsets.is_contiguous():
        return "offsets: is not contiguous"
    for name, t in (("a", a), ("b", transposed(b))):
        if t.stride(-1) != 1 and t.shape[-1] > 1:
            return f"{name}: is not contiguous along k"
        lines = [s for s, n in zip(t.stride()[:-1], t.shape[:-1], strict=True) if n > 1]
        if t.shape[-1] % 8 or any(s % 8 for s in lines) or t.align < 16:
            return f"{name}: its rows along k are not multiples of 16 bytes"
    blocks = cdiv(a.shape[0], TILE) + offsets.shape[0]
    if blocks > 65_535:
        return f"{blocks} rows of tiles exceed the size of a grid"
    return None


def fits_swiglu_wgmma(gpu, a, b, offsets):
    if transposed(b).stride(-1) != 1:
        return "b: is not contiguous along k"
    if b.shape[2] % 16:
        return f"rows of {b.shape[2] // 2} results are not multiples of 16 bytes"
    return fits_wgmma(gpu, a, b, offsets)


def fits_wgmma(gpu, a, b, offsets):
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        return f"{a.dtype} by {b.dtype}: not both bfloat16 or both float16"
    if offsets.shape[0] > MOST_GROUPS or not offsets.is_contiguous():
        return f"offsets: is not contiguous, or has more than {MOST_GROUPS} elements"
    if b.shape[2] % 8:
        return f"rows of {b.shape[2]} results are not multiples of 16 bytes"
    for name, t in (("a", a), ("b", transposed(b))):
        operand = matrix(name, t) if t.align >= 16 else f"{name}: is not aligned to 16 bytes"
        if isinstance(operand, str):
            return operand
        if name == "a" and not operand.k_major:
            return "a: is not contiguous along k"
        if name == "b" and b.shape[0] > 1 and not operand.batched:
            return "b: has stride 0 between groups"
    return None


def operands(a, b) -> tuple[Matrix, Matrix]:
    """a as rows along k, b as a batch of n rows along k, in either memory order."""
    of_a, of_b = matrix("a", a), matrix("b", transposed(b))
    assert isinstance(of_a, Matrix) and isinstance(of_b, Matrix), (of_a, of_b)
    return of_a, of_b


def choose(gpu, a, b, offsets):
    """Tiles of the height that the mean group fills."""
    rows, n = a.shape[0], b.shape[2]
    if rows <= TILE * offsets.shape[0]:
        return CONFIGS[2]
    return CONFIGS[0] if cdiv(rows, 128) * cdiv(n, 256) >= gpu.sms else CONFIGS[1]


def order(gpu, a, b, offsets):
    return ("cuda_wgmma", "cuda_mma")


def order_swiglu(gpu, a, b, offsets):
    return ("cuda_wgmma",)


def bucket(a, b, offsets):
    """Key of a call in the tuned table: dtype, the order of b, and sizes by powers of two."""
    sizes = (offsets.shape[0], a.shape[0], b.shape[2], a.shape[1])
    along = "k" if b.stride(1) == 1 else "n"
    return "/".join((kind(a.dtype), along, *(str(1 << max(s - 1, 0).bit_length()) for s in sizes)))
