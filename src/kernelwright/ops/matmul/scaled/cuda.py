"""Launches of the CUDA rungs. The kernel is explained in cuda_wgmma.cu."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import Launch, Plan, TensorMap, TensorSpec, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops.matmul.gemm.hopper.cuda import (
    BOX,
    Tiles,
    cuda_kernel,
    result_map,
)
from kernelwright.ops.matmul.gemm.hopper.tiling import multiplying

from .heuristics import UNIT
from .spec import BLOCK, FP8


def wgmma(gpu, config, a, b, scale_a, scale_b, kind, fast):
    return _scaled(gpu, config, a, b, kind, False)


def promoted(gpu, config, a, b, scale_a, scale_b, kind, fast):
    return _scaled(gpu, config, a, b, kind, True)


def _scaled(gpu, config, a, b, kind: str, promote: bool) -> Plan:
    (m, k), n = a.shape, b.shape[0]
    tiles = Tiles(gpu, config, 1, m, n)
    map_a, bytes_a = _map("a", a, config["bm"], config.get("cols", 1))
    map_b, bytes_b = _map("b", b, config["bn"], config.get("rows", 1))
    kernel = cuda_kernel(
        Path(__file__).with_name("cuda_wgmma.cu"), "matmul_scaled", config["bm"], config["bn"],
        config["stages"], config["boxes"], multiplying(config), config.get("rows", 1),
        config.get("cols", 1), kind.upper(), promote, cluster=tiles.cluster,
    )  # fmt: skip
    out = result_map("c", TensorSpec.contiguous((1, m, n), torch.bfloat16))
    numbers = (m, n, *tiles.order, tiles.count, cdiv(k, BLOCK), bytes_a + bytes_b)
    args = (map_a, map_b, out, "scale_a", "scale_b", *map(i32, numbers))
    groups = multiplying(config)
    stage = (config["bm"] + config["bn"]) * BLOCK
    shared = config["stages"] * stage + groups * config["boxes"] * BOX + 1024
    return Plan((Launch(kernel, (tiles.blocks, 1, 1), args, ((1 + groups) * 128, 1, 1), shared),))


def _map(name: str, t: TensorSpec, width: int, share: int) -> tuple[TensorMap, int]:
    """An operand's map, whose box is what one of `share` blocks loads of `width` rows, and the
    bytes that each of them receives. If the operand has fewer rows, the box is smaller."""
    rows, k = t.shape
    line = t.stride(0) if rows > 1 else cdiv(k, UNIT) * UNIT
    high = width // share if share > 1 else min(width, rows)
    return TensorMap(name, FP8, (k, rows, 1), (line, line), (BLOCK, high, 1)), high * share * BLOCK
