"""Launches of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.hopper.cuda import (
    SLICE,
    cuda_kernel,
    operand_map,
    result_map,
    shared_bytes,
    tensor_map,
)
from kernelwright.ops.matmul.gemm.hopper.tiling import multiplying

from .heuristics import TILE, operands

FOLDER = Path(__file__).parent
ROW = 128  # bytes per row of a slice


def mma(gpu, config, a, b, offsets):
    (rows, k), (groups, _, n) = a.shape, b.shape
    strides = (a.stride(0), b.stride(2), b.stride(0))
    kernel = CudaKernel(FOLDER / "cuda_mma.cu", f"grouped_mma<{CTYPE[a.dtype]}>")
    grid = (cdiv(n, TILE), cdiv(rows, TILE) + groups, 1)
    args = ("a", "b", "c", "offsets", i32(groups), i32(n), i32(k), *map(i64, strides))
    return Plan((Launch(kernel, grid, args, (128, 1, 1)),))


def wgmma(gpu, config, a, b, offsets):
    return _grouped(gpu, config, a, b, "c", b.shape[2], False)


def wgmma_swiglu(gpu, config, a, b, offsets):
    return _grouped(gpu, config, a, b, "y", b.shape[2] // 2, True)


def _grouped(gpu, config, a, b, out: str, n: int, swiglu: bool) -> Plan:
    """`n`: columns of the result; with a gate, a tile has half as many columns of it."""
    (rows, k), groups = a.shape, b.shape[0]
    of_a, of_b = operands(a, b)
    wide = config["bn"] // 2 if swiglu else config["bn"]
    map_a, bytes_a = operand_map("a", of_a, config["bm"])
    if swiglu:
        half = min(wide, of_b.width)
        map_b, bytes_b = tensor_map("b", of_b, (of_b.k, of_b.width), (SLICE, half)), 2 * half * ROW
    else:
        map_b, bytes_b = operand_map("b", of_b, config["bn"])
    result = TensorSpec.contiguous((1, rows, n), a.dtype)
    kernel = cuda_kernel(
        FOLDER / "cuda_wgmma.cu", "matmul_grouped", CTYPE[a.dtype], config["bm"], config["bn"],
        config["stages"], config["boxes"], multiplying(config), of_b.k_major, swiglu,
    )  # fmt: skip
    cols = cdiv(n, wide)
    tiles = (cdiv(rows, config["bm"]) + groups) * cols  # an upper bound: tiles do not span groups
    numbers = (groups, n, cols, cdiv(k, SLICE), bytes_a + bytes_b)
    args = (map_a, map_b, result_map(out, result), out, "offsets", *map(i32, numbers))
    threads = (1 + multiplying(config)) * 128
    shared = shared_bytes(config, of_a, of_b)
    return Plan((Launch(kernel, (min(gpu.sms, tiles), 1, 1), args, (threads, 1, 1), shared),))
