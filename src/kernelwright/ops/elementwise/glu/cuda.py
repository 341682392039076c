"""Launches of the CUDA C++ rungs. The formula is a struct of glu.cuh."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .tiling import rows_of

FOLDER = Path(__file__).parent
#: By `approximate`, which swiglu does not have: the names of a formula and of its backward.
FORMULA = {
    None: ("Swiglu", "SwigluBackward"),
    "none": ("Geglu<false>", "GegluBackward<false>"),
    "tanh": ("Geglu<true>", "GegluBackward<true>"),
}


def vec16(gpu, config, gate, up, approximate=None):
    inputs = {"gate": gate, "up": up}
    return _vec16("glu_fwd_vec16", FORMULA[approximate][0], inputs, ("y",), config)


def vec16_backward(gpu, config, gy, gate, up, approximate=None):
    inputs = {"gy": gy, "gate": gate, "up": up}
    return _vec16("glu_bwd_vec16", FORMULA[approximate][1], inputs, ("ggate", "gup"), config)


def rows16(gpu, config, gate, up, approximate=None):
    inputs = {"gate": gate, "up": up}
    return _rows16("glu_fwd_rows16", FORMULA[approximate][0], inputs, ("y",), config)


def rows16_backward(gpu, config, gy, gate, up, approximate=None):
    inputs = {"gy": gy, "gate": gate, "up": up}
    return _rows16("glu_bwd_rows16", FORMULA[approximate][1], inputs, ("ggate", "gup"), config)


def _vec16(kernel, formula, inputs, results, config):
    n = inputs["gate"].numel()
    args = (*inputs, *results, i64(n))
    return _plan("cuda_vec16.cu", kernel, formula, inputs["gate"], args, config)


def _rows16(kernel, formula, inputs, results, config):
    rows, cols, strides = rows_of(inputs.values())
    args = (*inputs, *results, i64(rows), i32(cols), *map(i64, strides))
    return _plan("cuda_rows16.cu", kernel, formula, inputs["gate"], args, config)


def _plan(source, kernel, formula, gate, args, config):
    block, unroll = config["block"], config["unroll"]
    stream = boolean(config["stream"])
    template = f"kw::{formula}, {CTYPE[gate.dtype]}, {block}, {unroll}, {stream}"
    tile = block * unroll * (16 // gate.itemsize)
    launch = Launch(
        CudaKernel(FOLDER / source, f"{kernel}<{template}>"),
        grid=(cdiv(gate.numel(), tile), 1, 1),
        block=(block, 1, 1),
        args=args,
    )
    return Plan((launch,))
