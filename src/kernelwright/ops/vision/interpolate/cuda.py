"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import math
from pathlib import Path
from struct import pack as to_bytes

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i32, i64, packed
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops._divisor import divisors
from kernelwright.ops.layout.permute_copy.heuristics import blocks_of
from kernelwright.ops.vision.images import count, pixel_stride, vector

from .heuristics import WEIGHTS
from .spec import step


def naive(gpu, config, x, hw, size, corners, given, scale_h, scale_w):
    return _naive("fwd", ("x", "y"), config, x, size, _axes(hw, size, corners, given))


def naive_backward(gpu, config, gy, hw, size, corners, given, scale_h, scale_w):
    return _naive("bwd", ("gy", "gx"), config, gy, hw, _axes(hw, size, corners, given))


def _naive(side, tensors, config, t, pixels, axes):
    numel = count(t) * math.prod(pixels) * t.shape[-1]
    args = (*tensors, *map(i64, (numel, t.shape[-1], pixel_stride(t))), *axes)
    return _plan("naive", f"{side}_naive<{CTYPE[t.dtype]}>", numel, config["block"], args)


def columns(gpu, config, x, hw, size, corners, given, scale_h, scale_w):
    axes, template = _axes(hw, size, corners, given), (CTYPE[x.dtype],)
    return _columns("fwd", ("x", "y"), template, config, x, size, axes)


def columns_backward(gpu, config, gy, hw, size, corners, given, scale_h, scale_w):
    axes, template = _axes(hw, size, corners, given), (CTYPE[gy.dtype], WEIGHTS)
    return _columns("bwd", ("gy", "gx"), template, config, gy, hw, axes)


def _columns(side, tensors, template, config, t, pixels, axes):
    block, rows = config["block"], config["rows"]
    groups = cdiv(pixels[0], rows)
    threads = count(t) * groups * pixels[1]
    args = (*tensors, i32(threads), divisors(pixels[1]), divisors(groups), *axes)
    name = f"{side}_columns<{', '.join(map(str, (*template, rows, block)))}>"
    return _plan("columns", name, threads, block, args)


def channels(gpu, config, x, hw, size, corners, given, scale_h, scale_w):
    return _channels("fwd", ("x", "y"), config, x, size, _axes(hw, size, corners, given))


def channels_backward(gpu, config, gy, hw, size, corners, given, scale_h, scale_w):
    return _channels("bwd", ("gy", "gx"), config, gy, hw, _axes(hw, size, corners, given))


def _channels(side, tensors, config, t, pixels, axes):
    block, wide = config["block"], vector(t)
    across = t.shape[-1] // wide
    vectors = count(t) * math.prod(pixels) * across
    args = (
        *tensors, i32(vectors), i64(pixel_stride(t)), divisors(across), divisors(pixels[1]),
        divisors(pixels[0]), *axes,
    )  # fmt: skip
    name = f"{side}_channels<{CTYPE[t.dtype]}, {wide}, {block}>"
    return _plan("channels", name, vectors, block, args)


def _axes(hw, size, corners, given):
    """kw::Sizes, and the scales: given by the call, or by the sizes."""
    sizes = packed(to_bytes("<5i", hw[0], size[0], hw[1], size[1], corners))
    if given and not corners:
        return sizes, f32("scale_h"), f32("scale_w")
    return sizes, *(f32(step(n, m, corners, False, 0)) for n, m in zip(hw, size, strict=True))


def _plan(trick, name, threads, block, args):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), f"bilinear_{name}")
    return Plan((Launch(kernel, blocks_of(threads, block), args, (block, 1, 1)),))
