"""Launch of cuda_reduce.cu."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import Launch, Plan, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.hopper.cuda import (
    SLICE,
    Tiles,
    cuda_kernel,
    operand_maps,
    shared_bytes,
)
from kernelwright.ops.matmul.gemm.hopper.tiling import multiplying

from .heuristics import operands


def reduce(gpu, config, total, gy, x):
    of_a, of_b = operands(gy, x)
    tiles = Tiles(gpu, config, 1, *total.shape)
    maps, bytes_ = operand_maps(config, of_a, of_b, ("gy", "x"))
    groups, cluster = multiplying(config), (config.get("rows", 1), config.get("cols", 1))
    sizes = (config["bm"], config["bn"], config["stages"], groups, *cluster)
    source = Path(__file__).with_name("cuda_reduce.cu")
    kernel = cuda_kernel(
        source, "accumulate_reduce", CTYPE[gy.dtype], *sizes, cluster=tiles.cluster
    )
    numbers = (*total.shape, *tiles.order, tiles.count, cdiv(gy.shape[0], SLICE), bytes_)
    args = (*maps, "total", *map(i32, numbers))
    threads = ((1 + groups) * 128, 1, 1)
    return Plan(
        (Launch(kernel, (tiles.blocks, 1, 1), args, threads, shared_bytes(config, of_a, of_b)),)
    )
