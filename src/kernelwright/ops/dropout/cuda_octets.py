"""Launches of the CUDA C++ rung that packs no bits."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f64, i64
from kernelwright.contract.arithmetic import cdiv

from .call import OCTET, Call
from .cuda import CTYPE

SOURCE = Path(__file__).parent / "cuda_octets.cu"


def octets(gpu, config, **args):
    return _map(config, Call(args), "y")


def octets_backward(gpu, config, **args):
    return _map(config, Call(args), "gx")


def _map(config, c, out):
    block, unroll = config["block"], config["unroll"]
    rows, cols = (1, c.n) if c.flat else (c.rows, c.cols)
    flags = ", ".join("true" if f else "false" for f in (c.bias, c.add, c.flat))
    stream = "true" if config["stream"] else "false"
    name = f"dropout_octets<{CTYPE[c.dtype]}, {flags}, {block}, {unroll}, {stream}>"
    pointers = c.main, *map(c.pointer, ("bias", "residual", "seed"))
    sizes = map(i64, (rows, cols, c.strides[0], c.residual_stride))
    launch = Launch(
        CudaKernel(SOURCE, name),
        grid=(cdiv(c.n, block * unroll * OCTET), 1, 1),
        block=(block, 1, 1),
        args=(*pointers, out, *sizes, f64("p")),
    )
    return Plan((launch,))
