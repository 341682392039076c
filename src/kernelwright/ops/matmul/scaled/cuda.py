"""Launches of the CUDA rungs. The kernel is ../gemm/cuda_scaled.cu, beside the headers of Hopper's
products that it is made of.

Tensor maps describe pairs of 8-bit elements: the headers count a row of 128 bytes as 64 elements.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Plan, TensorSpec, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops.matmul.gemm.cuda_hopper import (
    _kernel,
    _launch,
    _maps,
    _result_map,
    _Tiles,
)
from kernelwright.ops.matmul.gemm.hopper_tiling import Matrix, multiplying

from .heuristics import UNIT
from .spec import BLOCK


def wgmma(gpu, config, a, b, scale_a, scale_b, kind, fast):
    return _scaled(gpu, config, a, b, kind, False)


def promoted(gpu, config, a, b, scale_a, scale_b, kind, fast):
    return _scaled(gpu, config, a, b, kind, True)


def _scaled(gpu, config, a, b, kind: str, promote: bool) -> Plan:
    (m, k), n = a.shape, b.shape[0]
    of_a, of_b = _pairs(a), _pairs(b)
    tiles = _Tiles(gpu, config, 1, m, n)
    maps, bytes_ = _maps(config, of_a, of_b, ("a", "b"))
    kernel = _kernel(
        "scaled", "matmul_scaled", config["bm"], config["bn"], config["stages"], config["boxes"],
        multiplying(config), config.get("rows", 1), config.get("cols", 1), kind.upper(), promote,
        cluster=tiles.cluster,
    )  # fmt: skip
    out = _result_map("c", TensorSpec.contiguous((1, m, n), torch.bfloat16))
    numbers = (m, n, *tiles.order, tiles.count, cdiv(k, BLOCK), bytes_)
    args = (*maps, out, "scale_a", "scale_b", *map(i32, numbers))
    return Plan((_launch(kernel, config, tiles, args, of_a, of_b),))


def _pairs(t: TensorSpec) -> Matrix:
    """A matrix of 8-bit elements as one of pairs along k."""
    rows, k = t.shape
    line = t.stride(0) if rows > 1 else cdiv(k, UNIT) * UNIT
    return Matrix(True, rows, k // 2, line // 2, 1, 0, torch.bfloat16)
