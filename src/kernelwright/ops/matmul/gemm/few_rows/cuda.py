"""Launches of the rungs for few rows. The kernels are explained in their .cu files;
tiling.py defines which products they support."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import (
    NULL,
    CudaKernel,
    Launch,
    Plan,
    Scratch,
    TensorSpec,
    i32,
    i64,
)
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .tiling import (
    FEW,
    MOST,
    ROWS,
    SLICE,
    THREADS,
    Shape,
    Sides,
    line_of,
    power_of_two,
    shape_of,
    sides,
)

FOLDER = Path(__file__).parent
TEACHING = FOLDER.parent / "teaching"
ACTIVATION = {"none": "kNone", "relu": "kRelu", "gelu": "kGelu", "gelu_tanh": "kGeluTanh",
              "silu": "kSilu"}  # fmt: skip
ROWS_OF_SPLIT = 8  # cuda_gemv_split.cu's kRows


def thread(gpu, config, a, b, tf32=False):
    of = _sides(a, b, FEW)
    (n, k), m = of.weight.shape, of.x.shape[0]
    numbers = (i32(n), i32(k), *map(i64, (*of.weight.stride(), *of.x.stride(), *of.strides)))
    kernel = _kernel("gemv_thread", CTYPE[a.dtype], folder=TEACHING)
    return Plan((Launch(kernel, (cdiv(n, 64), m, 1), (*of.names, "c", *numbers), (64, 1, 1)),))


def warp(gpu, config, a, b, tf32=False):
    return _gemv("gemv_warp", a, b, 8, TEACHING)


def split(gpu, config, a, b, tf32=False):
    return _gemv("gemv_split", a, b, ROWS_OF_SPLIT, FOLDER)


def _gemv(file, a, b, rows, folder) -> Plan:
    """Blocks of 256 threads, each for `rows` rows of the weight."""
    of = _sides(a, b, FEW)
    (n, k), m = of.weight.shape, of.x.shape[0]
    strides = (line_of(of.weight), line_of(of.x), *of.strides)
    args = (*of.names, "c", i32(m), i32(n), i32(k), *map(i64, strides))
    kernel = _kernel(file, CTYPE[a.dtype], power_of_two(m), folder=folder)
    return Plan((Launch(kernel, (cdiv(n, rows), 1, 1), args, (THREADS, 1, 1)),))


def split_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    (m, k), n = x.shape, weight.shape[0]
    args = _linear_args(bias, gate, residual, keep)
    args = (*args, i32(m), i32(n), i32(k), i64(line_of(x)), i64(line_of(weight)))
    template = (CTYPE[x.dtype], power_of_two(m), f"matmul::{ACTIVATION[activation]}")
    kernel = _kernel("gemv_split", *template, entry="linear_gemv_split")
    return Plan((Launch(kernel, (cdiv(n, ROWS_OF_SPLIT), 1, 1), args, (THREADS, 1, 1)),))


def tensor_cores(gpu, config, a, b, tf32=False):
    of = _sides(a, b, MOST)
    (n, k), m = of.weight.shape, of.x.shape[0]
    shape = shape_of(gpu, config, m, n, k, ROWS * SLICE * 2)
    strides = (line_of(of.weight), line_of(of.x), *of.strides)
    args = (*of.names, "c", "partial", "arrived", i32(m), i32(n), i32(k), *map(i64, strides))
    kernel = _kernel("few_rows", *_template(a, shape), entry="matmul_few_rows")
    return planned(kernel, shape, args)


def tensor_cores_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    (m, k), n = x.shape, weight.shape[0]
    shape = shape_of(gpu, config, m, n, k, ROWS * SLICE * 2)
    args = (*_linear_args(bias, gate, residual, keep), "partial", "arrived")
    args = (*args, i32(m), i32(n), i32(k), i64(line_of(x)), i64(line_of(weight)))
    template = (*_template(x, shape), f"matmul::{ACTIVATION[activation]}")
    return planned(_kernel("few_rows", *template, entry="linear_few_rows"), shape, args)


def planned(kernel: CudaKernel, shape: Shape, args) -> Plan:
    """The launch of a kernel based on few_rows.cuh, and its workspace."""
    launch = Launch(kernel, (shape.grid, 1, 1), args, (THREADS, 1, 1), shape.shared)
    partial = TensorSpec.contiguous((shape.partial,), torch.float32)
    arrived = TensorSpec.contiguous((shape.tiles,), torch.int32)
    return Plan((launch,), {"partial": Scratch(partial), "arrived": Scratch(arrived, zero=True)})


def _template(x, shape: Shape) -> tuple:
    return CTYPE[x.dtype], shape.blocks, shape.stages, shape.resident


def _linear_args(bias, gate, residual, keep) -> tuple:
    given = {"bias": bias, "gate": gate, "residual": residual}
    optional = (NULL if t is None else name for name, t in given.items())
    return "x", "weight", *optional, "y", "z" if keep else NULL


def _sides(a, b, most: int) -> Sides:
    operands = sides(a, b, most)
    assert isinstance(operands, Sides), operands
    return operands


def _kernel(file: str, *template, entry: str = "", folder: Path = FOLDER) -> CudaKernel:
    name = f"{entry or file}<{', '.join(map(str, template))}>"
    return CudaKernel(folder / f"cuda_{file}.cu", name)
