"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.few_rows.cuda import planned
from kernelwright.ops.matmul.gemm.few_rows.tiling import (
    ROWS,
    SLICE,
    line_of,
    power_of_two,
    shape_of,
)

FOLDER = Path(__file__).parent
WARPS = 8  # cuda_warp.cu's kWarps


def warp(gpu, config, x, packed, scales, bias, bits):
    m, n = x.shape[0], packed.shape[0]
    kernel = _kernel("warp", CTYPE[x.dtype], bits, power_of_two(m))
    args = (*_tensors(bias), *_numbers(x, n))
    return Plan((Launch(kernel, (cdiv(n, WARPS), 1, 1), args, (32 * WARPS, 1, 1)),))


def few_rows(gpu, config, x, packed, scales, bias, bits):
    (m, k), n = x.shape, packed.shape[0]
    weight_bytes = ROWS * (SLICE * bits // 8 + 2 * x.itemsize)
    shape = shape_of(gpu, config, m, n, k, weight_bytes)
    kernel = _kernel("few_rows", CTYPE[x.dtype], bits, shape.blocks, shape.stages, shape.resident)
    return planned(kernel, shape, (*_tensors(bias), "partial", "arrived", *_numbers(x, n)))


def _tensors(bias) -> tuple:
    return "x", "packed", "scales", NULL if bias is None else "bias", "y"


def _numbers(x, n: int) -> tuple:
    m, k = x.shape
    return i32(m), i32(n), i32(k), i64(line_of(x))


def _kernel(trick: str, *template) -> CudaKernel:
    name = f"quantized_{trick}<{', '.join(map(str, template))}>"
    return CudaKernel(FOLDER / f"cuda_{trick}.cu", name)
