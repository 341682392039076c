"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract import TensorSpec
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

WIDEST = 256  # largest head size
# Our Hopper rungs are slower than cuDNN:
# - up to a head size of 64, causal: if there are more than MANY heads, with up to FEW keys;
# - up to 64, not causal: if waves of tiles of 192 rows take more than SLOWER % of waves of 128;
# - from 128 on: causal, or with less than a size of FULL_WIDE or LONG_WIDE keys.
MANY, FEW, SLOWER = 256, 4096, 112
FULL_WIDE, LONG_WIDE = 240, 2048
LONGEST_CAUSAL = 16_384  # number of keys from which on `cuda_wgmma` is the fastest of ours
UNEQUAL = {64: 1600, 128: 600}  # causal tiles from which on a counter distributes them better
MOST = 2**31 - 512  # maximum number of rows or keys: tiles extend past the last

FORWARD_CONFIGS = (
    {"rows": 128, "cols": 64, "warps": 8, "stages": 3},
    {"rows": 128, "cols": 128, "warps": 8, "stages": 2},
    {"rows": 128, "cols": 64, "warps": 4, "stages": 3},
)
MMA_CONFIGS = ({"cols": 64}, {"cols": 32})
BACKWARD_CONFIGS = ({"many": 128, "few": 64, "warps": 8, "stages": 2},)


def fits(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    """Why kernels do not support a call, or None."""
    for name, t in {"q": q, "k": k, "v": v, **more}.items():
        if name == "lse":
            continue
        if why := unsupported_dtype(t.dtype, name):
            return why
        if t.dtype != q.dtype:
            return f"{name}: {t.dtype} is not q's {q.dtype}"
    if max(q.shape[3], v.shape[3]) > WIDEST:
        return f"a head of {max(q.shape[3], v.shape[3])} elements is wider than {WIDEST}"
    if max(q.shape[2], k.shape[2]) > MOST:
        return f"{max(q.shape[2], k.shape[2])} rows leave no room in an int32"
    blocks = q.shape[0] * q.shape[1] * cdiv(max(q.shape[2], k.shape[2]), 16)
    return f"{blocks} blocks are more than a grid has" if blocks > MOST else None


def fits_triton(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    if mask is not None and mask.dtype != torch.bool and (why := unsupported_dtype(mask.dtype)):
        return f"mask: {why}"
    return fits(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more)


def fits_plain(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    """Requirements of rungs without masks and dropout."""
    if mask is not None:
        return "mask: only `causal` is supported"
    if seed is not None:
        return "p: weights are not dropped"
    return fits(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more)


def fits_tiled(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    return _wider(q, v) or fits_plain(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p)


def fits_mma(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    why = fits_vectors(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more)
    return why or _wider(q, v)


def _wider(q, v, most: int = 128) -> str | None:
    wide = max(q.shape[3], v.shape[3])
    return f"a head of {wide} elements is wider than {most}" if wide > most else None


def fits_vectors(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    """Requirements of rungs that load rows of 16-bit elements 16 bytes at a time."""
    if q.dtype not in (torch.bfloat16, torch.float16):
        return f"{q.dtype} is not bfloat16 or float16"
    for name, t in {"q": q, "k": k, "v": v, **more}.items():
        if name != "lse" and (why := _off_vectors(t)):
            return f"{name}: {why}"
    return fits_plain(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p, **more)


def _off_vectors(t: TensorSpec) -> str | None:
    """Why the rows of a tensor cannot be read 16 bytes at a time."""
    if t.align < 16:
        return "its memory starts off a 16-byte boundary"
    if t.stride(3) != 1 and t.shape[3] > 1:
        return "its heads are not contiguous"
    if t.shape[3] * t.itemsize % 16:
        return f"heads of {t.shape[3]} elements are no multiple of 16 bytes"
    for n, s in zip(t.shape[:3], t.stride()[:3], strict=True):
        if n > 1 and (s <= 0 or s * t.itemsize % 16):
            return f"strides {tuple(t.stride())} are not multiples of 16 bytes"
    return None


def choose_forward(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    """Fewer keys at a time if heads are narrow, and also fewer warps if they are causal."""
    if max(q.shape[3], v.shape[3]) > 64:
        return FORWARD_CONFIGS[1]
    return FORWARD_CONFIGS[2 if causal else 0]


def order(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    """Ours where they are faster than cuDNN, which `native` is on Hopper. Triton is used if PyTorch
    only has the formula, with scores in memory. Measured in records/nvidia-h200/measured/sdpa.txt.
    """
    if q.dtype.itemsize != 2:
        return ()
    formula, d, keys = _formula(q, k, v, mask, seed), max(q.shape[3], v.shape[3]), k.shape[2]
    heads, rows = q.shape[0] * q.shape[1], q.shape[2]
    ours = ()
    if formula or _faster(gpu, d, heads, rows, keys, causal):
        ours = _hopper(gpu, d, heads, rows, keys, causal)
    return (*ours, "triton_flash") if formula else ours


def _faster(gpu, d: int, heads: int, rows: int, keys: int, causal: bool) -> bool:
    """Whether our kernels for Hopper are faster than cuDNN's."""
    if d > 128:
        return not causal and d > FULL_WIDE and keys >= LONG_WIDE
    if d > 64 or _one_wave(gpu, heads, rows):
        return True
    if causal:
        return heads <= MANY or keys > FEW
    ours, cudnns = (cdiv(heads * cdiv(rows, n), gpu.sms) * n for n in (192, 128))
    return ours * 100 <= cudnns * SLOWER


def _one_wave(gpu, heads: int, rows: int) -> bool:
    """Whether every tile of 128 rows has a multiprocessor of its own."""
    return heads * cdiv(rows, 128) <= gpu.sms


def _hopper(gpu, d: int, heads: int, rows: int, keys: int, causal: bool) -> tuple[str, ...]:
    """The rungs for Hopper, the fastest first: one block for each tile if all run at once, or a
    head has more tiles than the GPU multiprocessors; a counter of tiles if many are unequal."""
    if d > 128:
        return ("cuda_wgmma_wide",)
    if _one_wave(gpu, heads, rows):
        return ("cuda_wgmma", "cuda_wgmma_persistent")
    if causal and d > 64 and keys >= LONGEST_CAUSAL:
        return ("cuda_wgmma", "cuda_wgmma_dynamic")
    tiles = heads * cdiv(rows, 128)
    if causal and tiles > UNEQUAL[128 if d > 96 else 64]:
        return ("cuda_wgmma_dynamic", "cuda_wgmma_persistent")
    return ("cuda_wgmma_persistent", "cuda_wgmma_dynamic")


def order_backward(gpu, gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    """cuDNN is faster than kernels that compute two products twice."""
    if q.dtype.itemsize != 2 or not _formula(q, k, v, mask, seed):
        return ()
    return ("cuda_wgmma", "triton_flash")


def _formula(q, k, v, mask, seed) -> bool:
    """Whether `native` is the formula, because PyTorch's fused kernels do not support a call."""
    if mask is not None or seed is not None or q.shape[3] != v.shape[3]:
        return True
    return q.shape[3] > 256 or any(_off_vectors(t) is not None for t in (q, k, v))


def aten(gpu, q, k, v, mask, seed, causal, mask_grad, scale, p):
    """The rung `native` in C++ where it may be cuDNN, which its settings decide in each call."""
    return "attention" if _cudnn(gpu, q, k, v, mask, seed) else None


def aten_backward(gpu, gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    """As `aten`, for the backward."""
    return "attention_backward" if _cudnn(gpu, q, k, v, mask, seed) else None


def _cudnn(gpu, q, k, v, mask, seed) -> bool:
    """Whether the rung `native` uses cuDNN, unless a setting of PyTorch forbids it."""
    return gpu.capability >= (9, 0) and q.dtype.itemsize == 2 and not _formula(q, k, v, mask, seed)


def bucket(q, k, v, mask, seed, causal, mask_grad, scale, p, **more):
    """Key of a call in the tuned table: dtype, head size, queries, keys and heads by powers of two,
    and the kind of masking."""
    options = ("causal" if causal else "full") + ("/mask" if mask is not None else "")
    options += "/drop" if seed is not None else ""
    sizes = (q.shape[2], k.shape[2], q.shape[0] * q.shape[1])
    powers = "/".join(str(next_power_of_2(n)) for n in sizes)
    return f"{kind(q.dtype)}/{options}/{q.shape[3]}x{v.shape[3]}/{powers}"
