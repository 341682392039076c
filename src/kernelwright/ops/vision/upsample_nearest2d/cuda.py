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

from .heuristics import times

ROWS = 4  # rows per thread of nearest_bwd_columns


def naive(gpu, config, x, hw, size, given, scale_h, scale_w):
    return _naive("fwd", ("x", "y"), config, x, math.prod(size), hw, size, given)


def naive_backward(gpu, config, gy, hw, size, given, scale_h, scale_w):
    return _naive("bwd", ("gy", "gx"), config, gy, math.prod(hw), hw, size, given)


def _naive(side, tensors, config, t, pixels, hw, size, given):
    numel = count(t) * pixels * t.shape[-1]
    args = (*tensors, *map(i64, (numel, t.shape[-1], pixel_stride(t))), *_axes(hw, size, given))
    return _plan("naive", f"{side}_naive<{CTYPE[t.dtype]}>", numel, config["block"], args)


def columns(gpu, config, x, hw, size, given, scale_h, scale_w):
    block, wide = config["block"], math.gcd(16 // x.itemsize, size[1])
    across = size[1] // wide
    vectors = count(x) * size[0] * across
    args = ("x", "y", i32(vectors), divisors(across), divisors(size[0]), *_axes(hw, size, given))
    return _plan("columns", f"fwd_columns<{CTYPE[x.dtype]}, {wide}, {block}>", vectors, block, args)


def columns_backward(gpu, config, gy, hw, size, given, scale_h, scale_w):
    block, groups = config["block"], cdiv(hw[0], ROWS)
    threads = count(gy) * groups * hw[1]
    args = ("gy", "gx", i32(threads), divisors(hw[1]), divisors(groups), *_axes(hw, size, given))
    name = f"bwd_columns<{CTYPE[gy.dtype]}, {ROWS}, {block}>"
    return _plan("columns", name, threads, block, args)


def channels(gpu, config, x, hw, size, given, scale_h, scale_w):
    unroll = config["unroll"]
    return _channels("fwd", ("x", "y"), (unroll,), config, x, size, hw, size, given)


def channels_backward(gpu, config, gy, hw, size, given, scale_h, scale_w):
    return _channels("bwd", ("gy", "gx"), (), config, gy, hw, hw, size, given)


def _channels(side, tensors, unroll, config, t, pixels, hw, size, given):
    block, by = config["block"], times(hw, size, given)
    across = t.shape[-1] // vector(t)
    vectors = count(t) * math.prod(pixels) * across
    template = (CTYPE[t.dtype], vector(t), by, *unroll, block)
    args = (
        *tensors, i32(vectors), i64(pixel_stride(t)), divisors(across), divisors(pixels[1]),
        divisors(pixels[0]), *_axes(hw, size, given),
    )  # fmt: skip
    name = f"{side}_channels<{', '.join(map(str, template))}>"
    return _plan("channels", name, cdiv(vectors, unroll[0] if unroll else 1), block, args)


def integer(gpu, config, x, hw, size, given, scale_h, scale_w):
    return _integer("fwd", ("x", "y"), config, x, hw, size)


def integer_backward(gpu, config, gy, hw, size, given, scale_h, scale_w):
    return _integer("bwd", ("gy", "gx"), config, gy, hw, size)


def _integer(side, tensors, config, t, hw, size):
    block, unroll = config["block"], config["unroll"]
    across = size[1] // (16 // t.itemsize)
    groups = count(t) * hw[0] * across
    name = f"{side}_integer<{CTYPE[t.dtype]}, {size[0] // hw[0]}, {unroll}, {block}>"
    args = (*tensors, i32(groups), divisors(across))
    return _plan("integer", name, cdiv(groups, unroll), block, args)


def _axes(hw, size, given):
    """kw::Sizes, and the scales: given by the call, or by the sizes."""
    sizes = packed(to_bytes("<4i", hw[0], size[0], hw[1], size[1]))
    if given:
        return sizes, f32("scale_h"), f32("scale_w")
    return sizes, *(f32(n / m) for n, m in zip(hw, size, strict=True))


def _plan(trick, name, threads, block, args):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), f"nearest_{name}")
    return Plan((Launch(kernel, blocks_of(threads, block), args, (block, 1, 1)),))
