"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean
from kernelwright.ops._divisor import divisors
from kernelwright.ops.layout.permute_copy.heuristics import blocks_of
from kernelwright.ops.vision.images import count, pixel_stride
from kernelwright.ops.vision.windows import (
    axes,
    made,
    rows_of_thread,
    side_by_side,
    together,
    width,
)

from .spec import index_dtype

NUMBER = {torch.uint8: "unsigned char", torch.int32: "int"}


def naive(gpu, config, x, hw, kernel, stride, padding, dilation, ceil, keep):
    out = made(hw, kernel, stride, padding, dilation, ceil)
    results = count(x) * math.prod(out) * x.shape[-1]
    args = (
        "x", "y", "at" if keep else NULL, *map(i64, (results, x.shape[-1], pixel_stride(x))),
        axes(hw, out, kernel, stride, padding, dilation),
    )  # fmt: skip
    name = f"fwd_naive<{CTYPE[x.dtype]}, {NUMBER[index_dtype(kernel)]}>"
    return _plan("naive", name, results, config["block"], args)


def naive_backward(gpu, config, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    pixels, channels = count(gy) * math.prod(hw) * gy.shape[-1], gy.shape[-1]
    args = (
        "gy", "at", "gx", *map(i64, (pixels, channels, pixel_stride(gy), pixel_stride(at))),
        axes(hw, gy.shape[-3:-1], kernel, stride, padding, dilation),
    )  # fmt: skip
    name = f"bwd_naive<{CTYPE[gy.dtype]}, {NUMBER[at.dtype]}>"
    return _plan("naive", name, pixels, config["block"], args)


def rows(gpu, config, x, hw, kernel, stride, padding, dilation, ceil, keep):
    block, wide = config["block"], width(x)
    each = rows_of_thread(config, wide)
    out = made(hw, kernel, stride, padding, dilation, ceil)
    vectors, groups = x.shape[-1] // wide, cdiv(out[0], each)
    threads = count(x) * groups * out[1] * vectors
    template = (CTYPE[x.dtype], wide, *kernel, stride[0], boolean(keep), each, block)
    args = (
        "x", "y", "at" if keep else NULL, i32(threads), i32(hw[1] * pixel_stride(x)),
        i32(pixel_stride(x)), *map(divisors, (vectors, out[1], groups)),
        axes(hw, out, kernel, stride, padding, dilation),
    )  # fmt: skip
    return _plan("rows", f"fwd_rows<{', '.join(map(str, template))}>", threads, block, args)


def blocks_backward(gpu, config, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    block, wide = config["block"], width(gy, at)
    vectors = gy.shape[-1] // wide
    down, across = map(cdiv, hw, stride)
    threads = count(gy) * down * across * vectors
    pixels = together(gy, hw, stride)
    template = (CTYPE[gy.dtype], wide, *kernel, *stride, *padding, pixels, block)
    args = (
        "gy", "at", "gx", i32(threads), i64(pixel_stride(gy)), i64(pixel_stride(at)),
        *map(divisors, (vectors, across, down)),
        axes(hw, gy.shape[-3:-1], kernel, stride, padding, dilation),
    )  # fmt: skip
    return _plan("blocks", f"bwd_blocks<{', '.join(map(str, template))}>", threads, block, args)


def columns(gpu, config, x, hw, kernel, stride, padding, dilation, ceil, keep):
    block, each = config["block"], config["rows"]
    out = made(hw, kernel, stride, padding, dilation, ceil)
    windows, groups = side_by_side(x, hw, out, kernel, stride, padding), cdiv(out[0], each)
    across = out[1] // windows
    threads = count(x) * groups * across
    template = (CTYPE[x.dtype], windows, *kernel, *stride, padding[1], boolean(keep), each, block)
    args = (
        "x", "y", "at" if keep else NULL, i32(threads), divisors(across), divisors(groups),
        axes(hw, out, kernel, stride, padding, dilation),
    )  # fmt: skip
    name = f"fwd_columns<{', '.join(map(str, template))}>"
    return _plan("columns", name, threads, block, args)


def columns_backward(gpu, config, gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    block, out = config["block"], gy.shape[-3:-1]
    windows, down = side_by_side(gy, hw, out, kernel, stride, padding), cdiv(hw[0], stride[0])
    across = out[1] // windows
    threads = count(gy) * down * across
    template = (CTYPE[gy.dtype], windows, *kernel, *stride, *padding, block)
    args = (
        "gy", "at", "gx", i32(threads), divisors(across), divisors(down),
        axes(hw, out, kernel, stride, padding, dilation),
    )  # fmt: skip
    name = f"bwd_columns<{', '.join(map(str, template))}>"
    return _plan("columns", name, threads, block, args)


def _plan(trick, name, threads, block, args):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), f"max_{name}")
    return Plan((Launch(kernel, blocks_of(threads, block), args, (block, 1, 1)),))
