"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import math
from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i64, struct_of
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.layout.permute_copy.heuristics import blocks_of

from .boxes import MOST, Dim, walk
from .heuristics import width


def naive(gpu, config, x, pad, value=0.0):
    return _plan("naive", CTYPE[x.dtype], config["block"], 1, x, pad)


def vec16(gpu, config, x, pad, value=0.0):
    block, unroll = config["block"], config["unroll"]
    template = f"{CTYPE[x.dtype]}, {width(x, pad)}, {unroll}, {block}"
    return _plan("vec16", template, block, unroll * (16 // x.itemsize), x, pad)


def _plan(trick, template, block, each, x, pad):
    """One thread per `each` elements of the result."""
    walked = walk(x, tuple(pad))
    count = math.prod(d.size for d in walked)
    dims = [Dim(1, 1, 0, 0)] * (MOST - len(walked)) + list(walked)
    box = struct_of(f"<{4 * MOST}q", *(n for of in zip(*dims, strict=True) for n in of))
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), f"pad_{trick}<{template}>")
    args = ("x", "y", i64(count), box, f32("value"))
    return Plan((Launch(kernel, blocks_of(cdiv(count, each), block), args, (block, 1, 1)),))
