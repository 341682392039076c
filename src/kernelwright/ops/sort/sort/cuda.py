"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv

from .tiling import CTYPE, network_of, rows_of

#: The integer that has an element's bits.
BITS = {2: "unsigned short", 4: "unsigned"}


def bitonic(gpu, config, x, descending=False):
    r, block = rows_of(x), config["block"]
    net = network_of(x, block)
    launch = Launch(
        CudaKernel(_source("bitonic"), f"sort_bitonic<{CTYPE[x.dtype]}, {block}>"),
        grid=(cdiv(r.rows, net.rows), 1, 1),
        args=(
            "x", "values", "indices",
            i64(r.rows), i32(r.n), i32(net.size), i64(r.stride), i32(descending),
        ),
        block=(block, 1, 1),
        shared=net.shared,
    )  # fmt: skip
    return Plan((launch,))


def scatter_backward(gpu, config, gvalues, indices):
    r, block = rows_of(gvalues), config["block"]
    launch = Launch(
        CudaKernel(_source("scatter"), f"sort_bwd_scatter<{BITS[gvalues.itemsize]}, {block}>"),
        grid=(cdiv(gvalues.numel(), block), 1, 1),
        args=("gvalues", "indices", "gx", i64(gvalues.numel()), i64(r.n), i64(r.stride)),
        block=(block, 1, 1),
    )
    return Plan((launch,))


def _source(rung):
    return Path(__file__).with_name(f"cuda_{rung}.cu")
