"""Launches of the CUDA C++ rung that takes vectors one after another."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f64, i32, i64
from kernelwright.contract.arithmetic import cdiv

from .call import OCTET, Call, shares
from .cuda import CTYPE, DRAW, WARP

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
    parts, share = shares(c.rows, strips, config["waves"] * config["resident"] * gpu.sms)
    # `together`: all blocks go down the tensor side by side; else each goes down a share of it
    apart, step, span = (down, down * parts, c.rows) if config["together"] else (share, down, share)
    what = CTYPE[c.dtype], DRAW[c.draw], down, config["stream"], config["resident"]
    sizes = i32(c.rows), i32(c.cols), i64(c.strides[0]), *map(i32, (apart, step, span))
    walk = Launch(
        _kernel("dropout_bwd_octets", *what),
        grid=(strips, parts, 1),
        block=(WARP, down, 1),
        args=("gy", c.pointer("seed"), c.pointer("mask"), "gx", "part", *sizes, f64("p")),
    )
    add = Launch(
        _kernel("dropout_octets_parts", CTYPE[c.dtype]),
        grid=(cdiv(c.cols, WARP), 1, 1),
        block=(WARP, 32, 1),
        args=("part", "gbias", i32(parts), i32(c.cols)),
        overlaps=True,
    )
    part = TensorSpec.contiguous((parts, c.cols), torch.float32)
    return Plan((walk, add), {"part": Scratch(part)})


def _kernel(name, *template) -> CudaKernel:
    words = (str(t).lower() if isinstance(t, bool) else str(t) for t in template)
    return CudaKernel(SOURCE, f"{name}<{', '.join(words)}>")
