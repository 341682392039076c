"""Launches of practice's CUDA C++ kernels."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv

FOLDER = Path(__file__).parent
SIDE, SCANNED, MOST_BLOCKS = 32, 128, 64


def vector_add(gpu, config, a, b):
    n = a.numel()
    return _plan("vector_add", (cdiv(n, 256), 1, 1), (256, 1, 1), "a", "b", "c", i64(n))


def transpose(gpu, config, x):
    rows, columns = x.shape
    grid = cdiv(columns, SIDE), cdiv(rows, SIDE), 1
    return _plan("transpose", grid, (SIDE, 8, 1), "x", "y", i32(rows), i32(columns))


def row_sum(gpu, config, x):
    rows, columns = x.shape
    return _plan("row_sum", (rows, 1, 1), (256, 1, 1), "x", "y", i32(columns))


def prefix_sum(gpu, config, x):
    rows, columns = x.shape
    return _plan("prefix_sum", (rows, 1, 1), (SCANNED, 1, 1), "x", "y", i32(columns))


def histogram(gpu, config, x, bins):
    n = x.numel()
    zero = _launch("zero", (cdiv(bins, 256), 1, 1), (256, 1, 1), ("counts", i32(bins)))
    grid = min(cdiv(n, 256), MOST_BLOCKS), 1, 1
    args = "x", "counts", i64(n), i32(bins)
    return Plan((zero, _launch("histogram", grid, (256, 1, 1), args, shared=4 * bins)))


def layernorm(gpu, config, x, weight, bias, eps):
    rows, columns = x.shape
    args = "x", "weight", "bias", "y", i32(columns), f32("eps")
    return _plan("layernorm", (rows, 1, 1), (256, 1, 1), *args)


def _plan(kernel, grid, block, *args):
    return Plan((_launch(kernel, grid, block, args),))


def _launch(kernel, grid, block, args, shared=0):
    return Launch(CudaKernel(FOLDER / f"cuda_{kernel}.cu", kernel), grid, args, block, shared)
