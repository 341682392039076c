"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

import math
from pathlib import Path
from struct import pack

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i64, packed
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .heuristics import TILE
from .spec import outputs


def naive(gpu, config, x, weight, bias, stride, padding, dilation):
    (y,) = outputs(x, weight, bias, stride, padding, dilation)
    args = (*_args(x, weight, bias, stride, padding, dilation), i64(y.numel()))
    return Plan((Launch(_kernel("naive", x), (cdiv(y.numel(), 256), 1, 1), args, (256, 1, 1)),))


def implicit(gpu, config, x, weight, bias, stride, padding, dilation):
    (y,) = outputs(x, weight, bias, stride, padding, dilation)
    pixels = math.prod(y.shape[:3])
    args = (*_args(x, weight, bias, stride, padding, dilation), i64(pixels))
    grid = (cdiv(pixels, TILE), cdiv(y.shape[3], TILE), 1)
    return Plan((Launch(_kernel("implicit", x), grid, args, (128, 1, 1)),))


def _args(x, weight, bias, stride, padding, dilation) -> tuple:
    """The tensors, and Geometry of geometry.cuh."""
    (y,) = outputs(x, weight, bias, stride, padding, dilation)
    numbers = (*x.shape, *y.shape[1:], *weight.shape[1:3], *stride, *padding, *dilation)
    geometry = packed(pack("<15i", *numbers))
    return "x", "weight", NULL if bias is None else "bias", "y", geometry


def _kernel(trick: str, x) -> CudaKernel:
    source = Path(__file__).with_name(f"cuda_{trick}.cu")
    return CudaKernel(source, f"conv2d_{trick}<{CTYPE[x.dtype]}>")
