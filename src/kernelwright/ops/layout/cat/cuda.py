"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path
from struct import pack

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i64, packed
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops.layout.permute_copy.heuristics import blocks_of

from .heuristics import stride_of, width
from .spec import MOST, NAMES, begins, given


def naive(gpu, config, **xs):
    return _plan("naive", str(xs["x0"].itemsize), config["block"], 1, xs)


def vec16(gpu, config, **xs):
    size, block, unroll = xs["x0"].itemsize, config["block"], config["unroll"]
    template = f"{size}, {width(given(xs))}, {unroll}, {block}"
    return _plan("vec16", template, block, unroll * (16 // size), xs)


def _plan(trick, template, block, each, xs):
    """One thread per `each` elements of the result."""
    tensors = given(xs)
    at = begins(tensors)
    count = at[-1]
    for n in tensors[0].shape[:-1]:
        count *= n
    at += [at[-1]] * (MOST + 1 - len(at))
    strides = [*map(stride_of, tensors), *[0] * (MOST - len(tensors))]
    pointers = (name if xs.get(name) is not None else NULL for name in NAMES)
    kernel = CudaKernel(
        Path(__file__).with_name(f"cuda_{trick}.cu"), f"cat_{trick}<{template}>"
    )  # fmt: skip
    columns = packed(pack(f"<{2 * MOST + 1}q", *at, *strides))
    launch = Launch(
        kernel,
        blocks_of(cdiv(count, each), block),
        (*pointers, "y", i64(count), columns),
        (block, 1, 1),
    )
    return Plan((launch,))
