"""Launches of the CUDA C++ rung."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f64, i32, i64
from kernelwright.contract.arithmetic import cdiv, shares
from kernelwright.contract.template_args import CTYPE, boolean

from .call import OCTET, Call

SOURCE = Path(__file__).parent / "cuda_vec16.cu"
DRAW = ("kw::Draw::kNone", "kw::Draw::kSeed", "kw::Draw::kMask")
WARP = 32


def vec16(gpu, config, **args):
    return _map(config, Call(args), "y")


def vec16_with_mask(gpu, config, **args):
    return _map(config, Call(args), "y", keep=True)


def vec16_backward(gpu, config, **args):
    c = Call(args)
    return _sums(gpu, config, c) if c.bias else _map(config, c, "gx")


def _map(config, c, out, keep=False):
    block, unroll = config["block"], config["unroll"]
    rows, cols = (1, c.n) if c.flat else (c.rows, c.cols)
    flags = ", ".join(map(boolean, (c.bias, c.add, keep)))
    template = (
        f"{_kind(c)}, {flags}, {block}, {unroll * OCTET // c.width}, {boolean(config['stream'])}"
    )
    pointers = [c.main, *map(c.pointer, ("bias", "residual", "seed", "mask"))]
    sizes = map(i64, (rows, cols, c.strides[0], c.residual_stride))
    launch = Launch(
        CudaKernel(SOURCE, f"dropout_vec16<{template}>"),
        grid=(cdiv(c.n, block * unroll * OCTET), 1, 1),
        block=(block, 1, 1),
        args=(*pointers, out, "mask" if keep else out, *sizes, f64("p")),
    )
    return Plan((launch,))


def _sums(gpu, config, c):
    down, unroll = config["down"], config["unroll"]
    strips = cdiv(c.cols, WARP * c.width)
    parts, share = shares(c.rows, strips, config["blocks_per_sm"] * gpu.sms)
    template = f"{_kind(c)}, {down}, {unroll * OCTET // c.width}, {boolean(config['stream'])}"
    sizes = i64(c.rows), i32(c.cols), i64(c.strides[0]), i64(share)
    walk = Launch(
        CudaKernel(SOURCE, f"dropout_bwd_vec16<{template}>"),
        grid=(strips, parts, 1),
        block=(WARP, down, 1),
        args=("gy", c.pointer("seed"), c.pointer("mask"), "gx", "part", *sizes, f64("p")),
    )
    add = Launch(
        CudaKernel(SOURCE, f"dropout_bwd_parts<{CTYPE[c.dtype]}>"),
        grid=(cdiv(c.cols, WARP), 1, 1),
        block=(WARP, 8, 1),
        args=("part", "gbias", i32(parts), i32(c.cols)),
        overlaps=True,
    )
    part = TensorSpec.contiguous((parts, c.cols), torch.float32)
    return Plan((walk, add), {"part": Scratch(part)})


def _kind(c) -> str:
    return f"{CTYPE[c.dtype]}, {DRAW[c.draw]}"
