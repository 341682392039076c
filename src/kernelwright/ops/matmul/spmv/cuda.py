"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

THREADS = 256
PART = 2048  # cuda_merge.cu's kPart
TENSORS = ("rows", "columns", "values", "x", "y")


def thread(gpu, config, rows, columns, values, x):
    m = rows.shape[0] - 1
    kernel = _kernel("thread", "spmv_thread", values, rows)
    return Plan((Launch(kernel, (cdiv(m, 128), 1, 1), (*TENSORS, i32(m)), (128, 1, 1)),))


def warp(gpu, config, rows, columns, values, x):
    m, width = rows.shape[0] - 1, config["width"]
    kernel = _kernel("warp", "spmv_warp", values, rows, width)
    grid = (cdiv(m * width, THREADS), 1, 1)
    return Plan((Launch(kernel, grid, (*TENSORS, i32(m)), (THREADS, 1, 1)),))


def merge(gpu, config, rows, columns, values, x):
    m, nonzeros = rows.shape[0] - 1, values.shape[0]
    blocks = cdiv(m + nonzeros, PART)
    shared = ("tail", "head", "tail_row", "head_row")
    parts = Launch(
        _kernel("merge", "spmv_merge", values, rows),
        (blocks, 1, 1),
        (*TENSORS, *shared, i32(m), i64(nonzeros)),
        (THREADS, 1, 1),
    )
    ends = Launch(
        CudaKernel(_source("merge"), f"spmv_merge_ends<{CTYPE[values.dtype]}>"),
        (cdiv(32 * blocks, THREADS), 1, 1),
        (*shared, "y", i32(blocks)),
        (THREADS, 1, 1),
    )
    kinds = (torch.float32, torch.float32, torch.int32, torch.int32)
    scratch = {
        name: Scratch(TensorSpec.contiguous((blocks,), dtype))
        for name, dtype in zip(shared, kinds, strict=True)
    }
    return Plan((parts, ends), scratch)


def _kernel(trick: str, name: str, values, rows, *template) -> CudaKernel:
    arguments = ", ".join((CTYPE[values.dtype], CTYPE[rows.dtype], *map(str, template)))
    return CudaKernel(_source(trick), f"{name}<{arguments}>")


def _source(trick: str) -> Path:
    return Path(__file__).with_name(f"cuda_{trick}.cu")
