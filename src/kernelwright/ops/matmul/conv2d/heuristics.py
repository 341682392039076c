"""Which rung handles a convolution. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, other_dtype
from kernelwright.ops.matmul.gemm.few_rows.tiling import HALVES

from .spec import outputs

TILE = 64  # kTile of cuda_implicit.cu


def fits(gpu, x, weight, bias, stride, padding, dilation):
    given = {"x": x, "weight": weight, "bias": bias}
    if why := other_dtype(given, "x"):
        return why
    for name, t in given.items():
        if t is not None and not t.is_contiguous():
            return f"{name}: is not contiguous"
    (y,) = outputs(x, weight, bias, stride, padding, dilation)
    if 0 in y.shape:
        return "the result is empty"
    if max(x.shape) >= 2**24 or weight.numel() >= 2**31 or y.numel() >= 2**38:
        return f"sizes {x.shape} and {weight.shape} exceed 32-bit indices"
    return None


def fits_implicit(gpu, x, weight, bias, stride, padding, dilation):
    if x.dtype not in HALVES:
        return f"x: {x.dtype} is not float16 or bfloat16"
    if x.shape[3] % 8 or x.align < 16 or weight.align < 16:
        return "x, weight: channels are not multiples of 16 bytes"
    if cdiv(weight.shape[0], TILE) > 65_535:
        return f"{weight.shape[0]} output channels exceed the size of a grid"
    return fits(gpu, x, weight, bias, stride, padding, dilation)


def order(gpu, **specs):
    """No rung: on most cases cuDNN is faster (records/nvidia-h200/conv2d.jsonl)."""
    return ()


def bucket(x, weight, **others):
    """Key of a call in the tuned table: dtype, batch by powers of two, and every other size."""
    batch = next_power_of_2(x.shape[0])
    return "/".join((kind(x.dtype), *map(str, (batch, *x.shape[1:], *weight.shape[:3]))))
