"""Which rung handles the gradient of a weight, and its launch parameters. Imports no kernel
language. The numbers of the configs are those of the Hopper rungs of matmul
(gemm/hopper/tiling.py)."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import kind
from kernelwright.ops.matmul.gemm.hopper.tiling import DTYPES, Matrix, matrix, transposed

CONFIGS = (
    {"bm": 128, "bn": 256, "stages": 4, "boxes": 0},
    {"bm": 128, "bn": 128, "stages": 6, "boxes": 0},
    {"bm": 64, "bn": 128, "stages": 8, "boxes": 0},
)
EDGE = 24
MANY_TOKENS, WAVES = 4096, 3
REDUCE_CONFIGS = (
    {"bm": 128, "bn": 256, "stages": 4, "boxes": 0},
    {"bm": 128, "bn": 256, "stages": 4, "boxes": 0, "rows": 2, "cols": 1},
    {"bm": 128, "bn": 192, "stages": 5, "boxes": 0},
    {"bm": 128, "bn": 128, "stages": 6, "boxes": 0},
    {"bm": 64, "bn": 192, "stages": 6, "boxes": 0},
    {"bm": 64, "bn": 128, "stages": 8, "boxes": 0},
)


def fits(gpu, total, gy, x):
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    if gy.dtype not in DTYPES or x.dtype != gy.dtype or total.dtype != torch.float32:
        return f"{gy.dtype} by {x.dtype} into {total.dtype}: not 16-bit operands into float32"
    if not total.is_contiguous() or total.align < 8 or total.shape[1] % 2:
        return "total: must be contiguous, aligned to 8 bytes and of even width"
    for name, t in (("gy", gy), ("x", x)):
        operand = (
            matrix(name, transposed(t)) if t.align >= 16 else f"{name}: is not aligned to 16 bytes"
        )
        if isinstance(operand, str):
            return operand
        if operand.k_major:
            return f"{name}: its rows are not contiguous"
    tiles = cdiv(total.shape[0], 64) * cdiv(total.shape[1], 128)
    return f"{tiles} tiles do not fit an int32" if tiles > 2**31 - 512 else None


def operands(gy, x) -> tuple[Matrix, Matrix]:
    """Both operands as rows of the result's dimensions by tokens."""
    of_a, of_b = matrix("gy", transposed(gy)), matrix("x", transposed(x))
    assert isinstance(of_a, Matrix) and isinstance(of_b, Matrix), (of_a, of_b)
    return of_a, of_b


def choose(gpu, total, gy, x):
    """The largest tiles of which every multiprocessor has one, otherwise the smallest."""
    for config in CONFIGS:
        if cdiv(total.shape[0], config["bm"]) * cdiv(total.shape[1], config["bn"]) >= gpu.sms:
            return config
    return CONFIGS[-1]


def choose_reduce(gpu, total, gy, x):
    """The tiles whose waves take the least time. For each element along k, a tile costs its
    products and, weighted by EDGE, the elements that it loads."""
    n, k = total.shape

    def time(config) -> int:
        waves = cdiv(cdiv(n, config["bm"]) * cdiv(k, config["bn"]), gpu.sms)
        return waves * (config["bm"] * config["bn"] + EDGE * (config["bm"] + config["bn"]))

    return min((c for c in REDUCE_CONFIGS if "rows" not in c), key=time)


def order(gpu, total, gy, x):
    """On an H200 (records/nvidia-h200/measured/few_rows_products.txt), cuda_reduce is
    faster than cuBLAS and an addition for 4,096 tokens and more, if its tiles are at least three
    waves. With fewer tiles it is slower, and with fewer tokens it was not timed."""
    tiles = cdiv(total.shape[0], 128) * cdiv(total.shape[1], 256)
    many = gy.shape[0] >= MANY_TOKENS and tiles >= WAVES * gpu.sms
    return ("cuda_reduce",) if many else ()


def bucket(total, gy, x):
    sizes = (gy.shape[0], *total.shape)
    return "/".join((kind(gy.dtype), *(str(1 << max(s - 1, 0).bit_length()) for s in sizes)))
