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
from kernelwright.ops.vision.images import pixel_stride

from .heuristics import POINTS


def naive(gpu, config, x, rois, size, scale, sampling, aligned):
    block = config["block"]
    count = rois.shape[0] * math.prod(size) * x.shape[1] * x.shape[4]
    strides = map(i64, (count, pixel_stride(rois), pixel_stride(x)))
    args = ("x", "rois", "y", *strides, _task(x, size, sampling, aligned), f32("scale"))
    kernel = _kernel("naive", f"roi_naive<{CTYPE[x.dtype]}>")
    return Plan((Launch(kernel, blocks_of(count, block), args, (block, 1, 1)),))


def shared(gpu, config, x, rois, size, scale, sampling, aligned):
    block, share = config["block"], config["share"]
    results = math.prod(size) * x.shape[1] * x.shape[4]
    args = (
        "x", "rois", "y", i32(results), i32(share), i64(pixel_stride(rois)), i64(pixel_stride(x)),
        _task(x, size, sampling, aligned), divisors(x.shape[4], size[1], size[0]), f32("scale"),
    )  # fmt: skip
    kernel = _kernel("shared", f"roi_shared<{CTYPE[x.dtype]}, {POINTS}, {sampling}, {block}>")
    grid = (rois.shape[0], cdiv(results, share), 1)
    return Plan((Launch(kernel, grid, args, (block, 1, 1)),))


def _task(x, size, sampling, aligned):
    """kw::Task."""
    return packed(to_bytes("<9i", *x.shape, *size, sampling, aligned))


def _kernel(trick: str, name: str) -> CudaKernel:
    return CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), name)
