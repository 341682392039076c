"""Launches of the CUDA C++ rung that processes vectors one after another."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f64, i32, i64
from kernelwright.contract.arithmetic import abreast, cdiv
from kernelwright.contract.template_args import CTYPE

from .call import OCTET, Call
from .cuda import DRAW, WARP

SOURCE = Path(__file__).parent / "cuda_octets.cu"


def octets(gpu, config, **args):
    return _map(config, Call(args), "y")


def octets_with_mask(gpu, config, **args):
    return _map(config, Call(args), "y", keep=True)


def octets_backward(gpu, config, **args):
    c = Call(args)
    return _sums(gpu, config, c) if c.bias else _map(config, c, "gx")


def _map(config, c, out, keep=False):
    block, steps = config["block"], config["steps"]
    rows, cols = (1, c.n) if c.flat else (c.rows, c.cols)
    what = CTYPE[c.dtype], DRAW[c.draw], c.bias, c.add, keep, c.dense
    pointers = [c.main, *map(c.pointer, ("bias", "residual", "seed", "mask"))]
    sizes = map(i64, (rows, cols, c.strides[0], c.residual_stride))
    launch = Launch(
        _kernel("dropout_octets", *what, block, steps, config["stream"], config["resident"]),
        grid=(cdiv(c.n, block * steps * OCTET), 1, 1),
        block=(block, 1, 1),
        args=(*pointers, out, "mask" if keep else out, *sizes, f64("p")),
    )
    return Plan((launch,))


def _sums(gpu, config, c):
    down = config["down"]
    strips = cdiv(c.cols, WARP * c.width)
    parts = abreast(c.rows, down, strips, config["waves"] * config["resident"] * gpu.sms)
    what = CTYPE[c.dtype], DRAW[c.draw], down, config["stages"], config["resident"]
    sizes = i32(c.rows), i32(c.cols), i64(c.strides[0])
    walk = Launch(
        _kernel("dropout_bwd_octets", *what),
        grid=(strips, parts, 1),
        block=(WARP, down, 1),
        args=(
            *("gy", c.pointer("seed"), c.pointer("mask"), "gx", "gbias", "handed"),
            *(*sizes, f64("p")),
        ),
    )
    handed = TensorSpec.contiguous((parts, strips, c.width, WARP), torch.int64)
    return Plan((walk,), {"handed": Scratch(handed, zero=True)})


def _kernel(name, *template) -> CudaKernel:
    words = (str(t).lower() if isinstance(t, bool) else str(t) for t in template)
    return CudaKernel(SOURCE, f"{name}<{', '.join(words)}>")
