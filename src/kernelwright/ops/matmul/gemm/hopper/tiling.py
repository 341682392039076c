"""Which products the rungs for Hopper's tensor cores support, and their configs. Imports no kernel
language.

The numbers of a config: a tile is `bm` x `bn` results; `stages` slices of 64 elements along k are
in flight; each warp group has `boxes` of 64 x 64 results that are being stored; a cluster is `rows`
x `cols` blocks (1 x 1 if omitted); `split` blocks divide a tile's k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from kernelwright.contract import TensorSpec
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.operator import Config, Gpu

DTYPES = (torch.bfloat16, torch.float16)
UNIT = 16  # bytes: alignment of the start of every row
MOST = 2**31 - 512  # maximum size of a dimension: coordinates are int32, and tiles extend past it
MOST_BLOCKS_DOWN = 65_535  # maximum size of a grid in y and in z

TMA_CONFIGS = ({"bn": 128, "stages": 4}, {"bn": 256, "stages": 4})
PERSISTENT_CONFIGS = (
    {"bm": 128, "bn": 256, "stages": 3, "boxes": 4},
    {"bm": 192, "bn": 192, "stages": 4, "boxes": 1},
    {"bm": 192, "bn": 160, "stages": 4, "boxes": 1},
    {"bm": 64, "bn": 192, "stages": 6, "boxes": 3},
    {"bm": 64, "bn": 160, "stages": 6, "boxes": 3},
    {"bm": 64, "bn": 128, "stages": 8, "boxes": 2},
    {"bm": 64, "bn": 96, "stages": 8, "boxes": 2},
    {"bm": 64, "bn": 64, "stages": 8, "boxes": 2},
)
MULTICAST_CONFIGS = (
    {"bm": 128, "bn": 256, "stages": 4, "boxes": 2, "rows": 2, "cols": 1},
    {"bm": 128, "bn": 256, "stages": 4, "boxes": 2, "rows": 2, "cols": 2},
    {"bm": 128, "bn": 224, "stages": 4, "boxes": 2, "rows": 2, "cols": 1},
    {"bm": 256, "bn": 192, "stages": 3, "boxes": 3, "rows": 2, "cols": 1},
    {"bm": 256, "bn": 160, "stages": 3, "boxes": 3, "rows": 2, "cols": 1},
    {"bm": 192, "bn": 192, "stages": 4, "boxes": 1, "rows": 2, "cols": 1},
    {"bm": 64, "bn": 192, "stages": 6, "boxes": 3, "rows": 2, "cols": 1},
    {"bm": 64, "bn": 128, "stages": 8, "boxes": 2, "rows": 2, "cols": 2},
)
PINGPONG_CONFIGS = (
    {"bm": 128, "bn": 128, "stages": 5, "boxes": 4},
    {"bm": 128, "bn": 160, "stages": 4, "boxes": 4},
    {"bm": 128, "bn": 192, "stages": 4, "boxes": 4},
)
PINGPONG_MULTICAST_CONFIGS = (
    {"bm": 128, "bn": 128, "stages": 5, "boxes": 4, "rows": 2, "cols": 2},
    {"bm": 128, "bn": 192, "stages": 4, "boxes": 4, "rows": 2, "cols": 1},
    {"bm": 128, "bn": 192, "stages": 4, "boxes": 4, "rows": 2, "cols": 2},
)
SPLIT_CONFIGS = (
    {"bm": 128, "bn": 64, "stages": 7, "split": 2},
    {"bm": 128, "bn": 128, "stages": 5, "split": 4},
    {"bm": 128, "bn": 192, "stages": 4, "split": 3},
    {"bm": 64, "bn": 64, "stages": 8, "split": 2},
    {"bm": 64, "bn": 64, "stages": 8, "split": 4},
    {"bm": 64, "bn": 64, "stages": 8, "split": 8},
    {"bm": 64, "bn": 128, "stages": 7, "split": 4},
)
#: The configs of the rungs that are dispatched.
CONFIGS = {
    "cuda_wgmma_persistent": PERSISTENT_CONFIGS,
    "cuda_wgmma_multicast": MULTICAST_CONFIGS,
    "cuda_wgmma_pingpong": PINGPONG_CONFIGS,
    "cuda_wgmma_pingpong_multicast": PINGPONG_MULTICAST_CONFIGS,
    "cuda_wgmma_split": SPLIT_CONFIGS,
}


def _held(config: Config) -> int:
    """The number of sums that a thread holds."""
    return config["bm"] * config["bn"] // (128 * multiplying(config))


def multiplying(config: Config) -> int:
    """The number of warp groups of cuda_wgmma_persistent.cu and cuda_wgmma_split.cu that multiply:
    each has 64 rows of the tile, or 128 of 256."""
    return 2 if config["bm"] == 256 else config["bm"] // 64


#: The same with an epilogue, which in clusters leaves no registers for the largest tiles.
LINEAR_CONFIGS = {
    **CONFIGS,
    "cuda_wgmma_multicast": tuple(c for c in MULTICAST_CONFIGS if _held(c) < 192),
    "cuda_wgmma_pingpong_multicast": PINGPONG_MULTICAST_CONFIGS[:1],
}


@dataclass(frozen=True)
class Matrix:
    """An operand as `width` rows along k. k_major: k is contiguous, otherwise the width is;
    `stride`: elements between the lines of the other dimension. batch: number of matrices of the
    operand; batched: whether these are several matrices in memory, `batch_stride` elements
    apart."""

    k_major: bool
    width: int
    k: int
    stride: int
    batch: int
    batch_stride: int
    dtype: torch.dtype

    @property
    def batched(self) -> bool:
        return self.batch_stride > 0

    @property
    def aligned(self) -> bool:
        """Whether every 128-byte row that the copy engine loads lies in a single cache line."""
        return self.stride * self.dtype.itemsize % 128 == 0


def matrix(name: str, t: TensorSpec) -> Matrix | str:
    """An operand of shape (width, k), or a batch of such, or why the copy engine does not support
    it."""
    for dim in (-1, -2):
        other = -3 - dim
        stride = t.stride(other)
        if t.shape[other] == 1:
            stride = cdiv(t.shape[dim] * t.itemsize, UNIT) * UNIT // t.itemsize
        fits = stride > 0 and stride * t.itemsize % UNIT == 0
        if fits and (t.stride(dim) == 1 or t.shape[dim] == 1):
            break
    else:
        return (
            f"{name}: strides {tuple(t.stride())} are not 1 in one dimension and a multiple of "
            f"{UNIT} bytes in the other"
        )
    batch = t.shape[0] if t.ndim == 3 else 1
    batch_stride = t.stride(0) if batch > 1 else 0
    if batch_stride * t.itemsize % UNIT:
        return f"{name}: matrices {batch_stride} elements apart are no multiple of {UNIT} bytes"
    if max(t.shape) > MOST:
        return f"{name}: a dimension of {max(t.shape)} leaves no room in an int32"
    return Matrix(dim == -1, t.shape[-2], t.shape[-1], stride, batch, batch_stride, t.dtype)


def transposed(t: TensorSpec) -> TensorSpec:
    """t with its last two dimensions exchanged."""
    shape, strides = ((*x[:-2], x[-1], x[-2]) for x in (tuple(t.shape), tuple(t.stride())))
    return replace(t, shape=shape, strides=strides)


def rows_stride(t: TensorSpec) -> int:
    """Elements between the rows of a tensor that an epilogue reads."""
    return t.stride(0) if t.shape[0] > 1 else t.shape[1]


def clusters_at_once(gpu: Gpu, blocks: int) -> int:
    """The number of clusters of `blocks` blocks that run at the same time, with one block per
    multiprocessor. A cluster lies within a group of up to 18 multiprocessors, some of which are
    disabled: on the 132 of an H200, clusters of 4 fill 120 and clusters of 3 fill 117."""
    most = {1: 132, 2: 66, 3: 39, 4: 30}.get(blocks, 112 // blocks)
    return max(1, gpu.sms * most // 132)


def fits(gpu, a, b, tf32=False):
    """Why no rung for Hopper's tensor cores supports a product, or None."""
    if gpu.capability != (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no wgmma"
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        return f"{a.dtype} by {b.dtype}: not both bfloat16 or both float16"
    if 0 in (*a.shape, *b.shape):
        return "an empty product launches nothing"
    if b.shape[-1] % 8:
        return f"rows of {b.shape[-1]} results are no multiple of 16 bytes"
    for name, t, as_rows in (("a", a, a), ("b", b, transposed(b))):
        if t.align < UNIT:
            return f"{name}: its memory starts off a 16-byte boundary"
        operand = matrix(name, as_rows)
        if isinstance(operand, str):
            return operand
    tiles = math.prod(a.shape[:-2]) * cdiv(a.shape[-2], 64) * cdiv(b.shape[-1], 64)
    return f"{tiles} tiles do not fit an int32" if tiles > MOST else None


def fits_grid(gpu, a, b, tf32=False):
    """`fits`, and whether one block per tile of 128 x 128 fits in a grid."""
    reason = fits(gpu, a, b)
    down = max(cdiv(a.shape[-2], 128), a.shape[0] if a.ndim == 3 else 1)
    if reason is None and down > MOST_BLOCKS_DOWN:
        return f"{down} tiles below each other are more than a grid has"
    return reason


def fits_split(gpu, a, b, tf32=False):
    if a.ndim == 3:
        return "a batch: its matrices fill the machine"
    least = 64 * (max(c["split"] for c in SPLIT_CONFIGS) - 1)
    if a.shape[1] <= least:
        return f"k = {a.shape[1]} gives a block of the widest split nothing, {least + 1} is enough"
    return fits(gpu, a, b)


def fits_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    reason = fits(gpu, x, transposed(weight))
    if reason:
        return reason.replace("a:", "x:", 1).replace("b:", "weight:", 1)
    if bias is not None and (bias.align < 4 or (bias.stride(0) != 1 and bias.shape[0] > 1)):
        return "bias: its elements are not neighbors, or start off 4 bytes"
    for name, t in (("gate", gate), ("residual", residual)):
        if t is None:
            continue
        if t.align < UNIT or t.stride(1) != 1 or rows_stride(t) % 8 or rows_stride(t) <= 0:
            return f"{name}: strides {t.strides} or its start are no multiples of 16 bytes"
    return None


def fits_linear_lean(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    """`fits_linear`, except for calls with everything that an epilogue can have: a thread of a
    cluster, or of a tile that one warp group multiplies, has no registers for this."""
    if gate is not None and residual is not None and keep:
        return "gate, residual and keep together leave a thread no registers"
    return fits_linear(gpu, x, weight, bias, gate, residual, activation, keep)


def fits_linear_split(gpu, x, weight, **others):
    reason = fits_split(gpu, x, transposed(weight))
    return reason or fits_linear(gpu, x, weight, **others)
