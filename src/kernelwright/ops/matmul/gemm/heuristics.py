"""Which rung handles a product, and its launch parameters. Imports no kernel language.

`fits_*` returns why a product does not fit a rung, or None.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Config
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype
from kernelwright.contract.inputs import FLOATS

from .tiling import by_rows, order_of

PRODUCTS = 2**33  # maximum number of products that the formula writes to memory

DYNAMIC_CONFIGS = ({"tile": 32}, {"tile": 16}, {"tile": 8})


def _tile(block: str, warp: str, each: str, depth: int, stages: int, blocks: int) -> Config:
    """A config of cuda_tuned, with sizes written as rows x columns; `blocks` per multiprocessor."""
    names = ("rows", "cols"), ("warp_rows", "warp_cols"), ("each_rows", "each_cols")
    sizes = {
        name: int(size)
        for pair, text in zip(names, (block, warp, each), strict=True)
        for name, size in zip(pair, text.split("x"), strict=True)
    }
    return {**sizes, "depth": depth, "stages": stages, "blocks": blocks}


TUNED_CONFIGS = (
    _tile("128x256", "64x64", "8x16", 16, 2, 1),
    _tile("256x128", "64x64", "8x16", 16, 3, 1),
    _tile("128x128", "64x64", "8x16", 16, 3, 2),
    _tile("128x128", "64x64", "8x16", 8, 4, 2),
    _tile("128x128", "32x64", "8x8", 16, 3, 2),
    _tile("64x64", "32x32", "8x4", 16, 4, 3),
    _tile("32x32", "16x32", "4x4", 16, 4, 8),
)
MMA_CONFIGS = (
    {"rows": 128, "cols": 256, "warp_rows": 64, "warp_cols": 64, "stages": 3},
    {"rows": 128, "cols": 128, "warp_rows": 64, "warp_cols": 32, "stages": 4},
    {"rows": 64, "cols": 64, "warp_rows": 32, "warp_cols": 32, "stages": 4},
)

#: Bytes of shared memory of the largest configs.
MMA_SHARED = BLOCK_SHARED = 147_456
PERSISTENT_SHARED = 229_376

# depth: bytes of a block's rows along k
TRITON_CONFIGS = (
    {"rows": 64, "cols": 64, "depth": 128, "warps": 4, "stages": 4},
    {"rows": 128, "cols": 128, "depth": 128, "warps": 8, "stages": 3},
    {"rows": 128, "cols": 256, "depth": 128, "warps": 8, "stages": 3},
)


def fits_manual(gpu, a, b, tf32=False):
    products = a.numel() * b.shape[-1]
    return f"{products} products, each in memory" if products > PRODUCTS else None


def fits_manual_linear(gpu, x, weight, **others):
    products = x.numel() * weight.shape[0]
    return f"{products} products, each in memory" if products > PRODUCTS else None


def fits_compiled(gpu, tf32=False, **tensors):
    return "tf32 is asked for by a setting that torch.compile reads once" if tf32 else None


def fits_rows(gpu, a, b, tf32=False):
    """Requirements of the teaching rungs: two float32 matrices with contiguous rows."""
    return f"{a.dtype} is not float32" if a.dtype != torch.float32 else _fits_rows(a, b)


def _fits_rows(a, b) -> str | None:
    if a.ndim == 3:
        return "a batch"
    for name, t in (("a", a), ("b", b)):
        if not by_rows(t):
            return f"{name}: its rows are not contiguous"
    sizes = (*a.shape, b.shape[1])
    if cdiv(a.shape[0], 8) > 65_535 or max(sizes) >= 2**31:
        return f"sizes {sizes} are more than a grid of tiles takes"
    return None


def fits_vectors(gpu, a, b, tf32=False):
    """Requirements of the rungs that read 16 bytes of a row."""
    reason = fits_rows(gpu, a, b)
    if reason:
        return reason
    for name, t in (("a", a), ("b", b)):
        if t.shape[1] % 4 or t.stride(0) % 4 or t.align < 16:
            return f"{name}: its rows are not multiples of 16 bytes"
    return None


def fits_copied(gpu, a, b, tf32=False):
    """Requirements of the rungs that read 16 bytes of a row of b."""
    reason = fits_rows(gpu, a, b)
    if reason:
        return reason
    even = b.shape[1] % 4 == 0 and b.stride(0) % 4 == 0 and b.align == 16
    return None if even else "b: its rows are not multiples of 16 bytes"


def fits_wmma(gpu, a, b, tf32=False):
    if a.dtype not in FLOATS or (a.dtype == torch.float32 and not tf32):
        return f"{a.dtype} operands may not be rounded for tensor cores"
    reason = _fits_rows(a, b)
    if reason:
        return reason
    for name, t in (("a", a), ("b", b)):
        if any(n * t.itemsize % 16 for n in (t.shape[1], t.stride(0))) or t.align < 16:
            return f"{name}: its rows are not multiples of 16 bytes"
    return None


def fits_mma(gpu, a, b, tf32=False):
    if a.dtype not in FLOATS[1:]:
        return f"{a.dtype} is not float16 or bfloat16"
    for name, t, dim in (("a", a, -1), ("b", b, -2)):
        order = order_of(t, dim)
        if order is None:
            return f"{name} has neighbours along neither dimension"
        if order.line % 8 or order.batch % 8 or t.align < 16:
            return f"{name}: its lines of memory do not begin at multiples of 16 bytes"
    sizes = (*a.shape[-2:], b.shape[-1])
    if max(sizes) >= 2**31 - 256 or math.prod(a.shape[:-1]) * cdiv(sizes[-1], 64) >= 2**31:
        return f"sizes {sizes} are more than a grid of tiles takes"
    return _shared(gpu, MMA_SHARED)


def choose_mma(gpu, a, b, tf32=False):
    batch, m, n = math.prod(a.shape[:-2]), a.shape[-2], b.shape[-1]
    for config in MMA_CONFIGS[:2]:
        if batch * cdiv(m, config["rows"]) * cdiv(n, config["cols"]) >= gpu.sms:
            return config
    return MMA_CONFIGS[-1]


def _shared(gpu, needed: int) -> str | None:
    """Why a GPU cannot run the largest config of a rung."""
    if gpu.shared_per_block < needed:
        return f"a block takes {needed} bytes of shared memory, of {gpu.shared_per_block}"
    return None


def fits_tuned(gpu, a, b, tf32=False):
    return _fits_tuned(a, b, -2)


def fits_tuned_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    return _plain(bias, gate, residual) or _fits_tuned(x, weight, -1)


def _fits_tuned(a, b, k_dim: int) -> str | None:
    if a.dtype != torch.float32:
        return f"{a.dtype} is not float32"
    n = b.shape[-3 - k_dim]
    for name, t, dim in (("the first operand", a, -1), ("the second operand", b, k_dim)):
        order = order_of(t, dim)
        if order is None:
            return f"{name} has neighbours along neither dimension"
        if max(t.shape[-2:]) > 1 and order.line >= 2**23:
            return f"{name}: {order.line} elements from line to line are too many"
    sizes = (*a.shape[-2:], n)
    if max(sizes) >= 2**31 or math.prod(a.shape[:-1]) * cdiv(n, 32) >= 2**31:
        return f"sizes {sizes} are more than a grid of tiles takes"
    return None


def fits_block(gpu, a, b, tf32=False):
    return _shared(gpu, BLOCK_SHARED) or _fits_triton(a, b, -2)


def fits_block_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    reason = _shared(gpu, BLOCK_SHARED) or _plain(bias, gate, residual)
    return reason or _fits_triton(x, weight, -1)


def fits_persistent(gpu, a, b, tf32=False):
    return _shared(gpu, PERSISTENT_SHARED) or fits_block(gpu, a, b)


def fits_persistent_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    given = x, weight, bias, gate, residual, activation, keep
    return _shared(gpu, PERSISTENT_SHARED) or fits_block_linear(gpu, *given)


def _fits_triton(a, b, k_dim: int) -> str | None:
    if why := unsupported_dtype(a.dtype):
        return why
    for name, t, dim in (("the first operand", a, -1), ("the second operand", b, k_dim)):
        if order_of(t, dim) is None:
            return f"{name} has neighbours along neither dimension"
    sizes = (*a.shape[-2:], b.shape[-3 - k_dim])
    if max(sizes) >= 2**31 - 256 or math.prod(a.shape[:-1]) * cdiv(sizes[-1], 64) >= 2**31:
        return f"sizes {sizes} are more than a grid of tiles takes"
    return None


def _plain(bias, gate, residual) -> str | None:
    """Why kernels that index the epilogue's operands like the result do not support them."""
    for name, t in (("bias", bias), ("gate", gate), ("residual", residual)):
        if t is not None and not t.is_contiguous():
            return f"{name}: is not contiguous"
    return None


def choose_triton(gpu, a, b, tf32=False):
    return _triton(gpu, a, tf32, math.prod(a.shape[:-2]), b.shape[-1])


def choose_triton_linear(gpu, x, weight, tf32=False, **others):
    return _triton(gpu, x, tf32, 1, weight.shape[0])


def _triton(gpu, a, tf32: bool, batch: int, n: int) -> Config:
    """The largest tile of which every multiprocessor has one; the smallest if float32 values are
    multiplied one by one, each in a register."""
    if a.dtype == torch.float32 and not tf32:
        return TRITON_CONFIGS[0]
    for config in reversed(TRITON_CONFIGS):
        if batch * cdiv(a.shape[-2], config["rows"]) * cdiv(n, config["cols"]) >= gpu.sms:
            return config
    return TRITON_CONFIGS[0]


def choose_tuned(gpu, a, b, tf32=False):
    batch = math.prod(a.shape[:-2])
    return _choose(gpu, batch, a.shape[-2], b.shape[-1], order_of(a, -1), order_of(b, -2))


def choose_tuned_linear(gpu, x, weight, **others):
    of_x, of_weight = order_of(x, -1), order_of(weight, -1)
    return _choose(gpu, 1, x.shape[0], weight.shape[0], of_x, of_weight)


def _choose(gpu, batch: int, m: int, n: int, of_a, of_b) -> Config:
    """The largest tile of which every multiprocessor has one. Of several largest tiles the one that
    suits the operands: those contiguous along k are copied 4 bytes at a time, so they get the
    shorter side."""
    largest = TUNED_CONFIGS[0 if of_a.name == "kAlongK" else 1]
    if of_b.name == "kAlongK":
        largest = TUNED_CONFIGS[3]
    for config in (largest, TUNED_CONFIGS[2], TUNED_CONFIGS[-2]):
        if batch * cdiv(m, config["rows"]) * cdiv(n, config["cols"]) >= gpu.sms:
            return config
    return TUNED_CONFIGS[-1]


def bucket(a, b, tf32=False):
    """Key of a product in the tuned table: dtype, layouts, and sizes by powers of two."""
    batch = a.shape[0] if a.ndim == 3 else 1
    sizes = (batch, a.shape[-2], b.shape[-1], a.shape[-1])
    return "/".join([_dtype(a, tf32), layouts(a, b), *(str(next_power_of_2(s)) for s in sizes)])


def bucket_linear(x, weight, activation, tf32=False, **others):
    sizes = (x.shape[0], weight.shape[0], x.shape[1])
    key = [_dtype(x, tf32), layouts(x, weight), activation]
    return "/".join([*key, *(str(next_power_of_2(s)) for s in sizes)])


def layouts(a, b) -> str:
    """BLAS's name for the memory order of both operands: N for rows, T for columns, as in "NT"."""
    return "".join("N" if t.stride(-1) == 1 else "T" for t in (a, b))


def _dtype(t, tf32: bool) -> str:
    return "tf32" if tf32 else kind(t.dtype)


def aten(gpu, a, b, tf32):
    """The rung `native` in C++; how float32 is rounded, it would have to find out in each call."""
    return None if a.dtype == torch.float32 else "matmul"


def aten_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32):
    """As `aten`, for linear without an epilogue."""
    epilogue = activation != "none" or gate is not None or residual is not None or keep
    return None if x.dtype == torch.float32 or epilogue else "linear"
