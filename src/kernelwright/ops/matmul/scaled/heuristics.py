"""Which rung handles a product of 8-bit operands, and its launch parameters. Imports no kernel
language. The numbers of the configs are those of the Hopper rungs of matmul
(gemm/hopper/tiling.py)."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv

from .spec import BLOCK, FP8

UNIT = 16  # bytes: alignment of the start of every row
MOST = 2**31 - 512

FAST_CONFIGS = (
    {"bm": 128, "bn": 256, "stages": 4, "boxes": 2, "rows": 2, "cols": 1},
    {"bm": 128, "bn": 256, "stages": 3, "boxes": 4},
    {"bm": 128, "bn": 128, "stages": 5, "boxes": 4},
    {"bm": 64, "bn": 128, "stages": 7, "boxes": 2},
)
PROMOTED_CONFIGS = (
    {"bm": 128, "bn": 128, "stages": 6, "boxes": 2, "rows": 2, "cols": 1},
    {"bm": 128, "bn": 128, "stages": 6, "boxes": 2},
    {"bm": 64, "bn": 128, "stages": 7, "boxes": 2},
)


def fits_fast(gpu, a, b, scale_a, scale_b, kind, fast):
    if not fast or kind == "block":
        return "accumulation in float32 is required"
    return _fits(gpu, a, b, scale_a, scale_b)


def fits_promoted(gpu, a, b, scale_a, scale_b, kind, fast):
    if kind == "block" and b.shape[0] % BLOCK:
        return f"{b.shape[0]} rows of b are not a multiple of {BLOCK}"
    return _fits(gpu, a, b, scale_a, scale_b)


def _fits(gpu, a, b, scale_a, scale_b) -> str | None:
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    if 0 in (*a.shape, *b.shape):
        return "the product is empty"
    for name, t in (("a", a), ("b", b)):
        if t.dtype != FP8:
            return f"{name}: {t.dtype} is not {FP8}"
        line = t.stride(0) if t.shape[0] > 1 else UNIT
        if t.stride(1) != 1 or line % UNIT or line <= 0 or t.align < UNIT:
            return f"{name}: its rows are not multiples of {UNIT} bytes along k"
        if max(t.shape) > MOST:
            return f"{name}: a dimension of {max(t.shape)} exceeds 32-bit indices"
    for name, t in (("scale_a", scale_a), ("scale_b", scale_b)):
        if not t.is_contiguous():
            return f"{name}: is not contiguous"
    if b.shape[0] % 8:
        return f"rows of {b.shape[0]} results are not multiples of 16 bytes"
    tiles = cdiv(a.shape[0], 64) * cdiv(b.shape[0], 128)
    return f"{tiles} tiles do not fit an int32" if tiles > MOST else None


def choose_fast(gpu, a, b, **others):
    return _choose(gpu, FAST_CONFIGS, a.shape[0], b.shape[0])


def choose_promoted(gpu, a, b, **others):
    return _choose(gpu, PROMOTED_CONFIGS, a.shape[0], b.shape[0])


def _choose(gpu, configs, m: int, n: int):
    """The largest tiles of which every multiprocessor has one, otherwise the smallest."""
    for config in configs:
        if cdiv(m, config["bm"]) * cdiv(n, config["bn"]) >= gpu.sms:
            return config
    return configs[-1]


def order(gpu, a, b, scale_a, scale_b, kind, fast):
    """On an H200 cuBLAS is at least as fast in most products with scales per tensor or per row
    (records/nvidia-h200/measured/matrix_products.txt); it does not support scales per block."""
    return ("cuda_promoted",) if kind == "block" else ()


def bucket(a, b, kind, fast, **others):
    sizes = (a.shape[0], b.shape[0], a.shape[1])
    return "/".join((kind, "fast" if fast else "float32", *(str(1 << max(s - 1, 0).bit_length())
                                                             for s in sizes)))  # fmt: skip
