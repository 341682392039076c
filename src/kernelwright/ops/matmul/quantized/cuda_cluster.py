"""Launches of cuda_few_rows_cluster.cu and cuda_few_rows_wgmma.cu, which are explained there."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, Plan, i32, i64
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.few_rows.cluster_tiling import split_of, wgmma_split_of
from kernelwright.ops.matmul.gemm.few_rows.cuda_cluster import places, planned
from kernelwright.ops.matmul.gemm.few_rows.tiling import line_of

FOLDER = Path(__file__).parent


def plan(gpu, config, x, packed, scales, bias, bits) -> Plan:
    (m, k), n = (fixed(x.shape[0]), x.shape[1]), packed.shape[0]
    split = split_of(gpu, config, m, n, k, bits)
    first = (CTYPE[x.dtype], bits, split.depth // 128)
    args = _args(split, x, packed, bias)
    source = FOLDER / "cuda_few_rows_cluster.cu"
    return planned(source, "quantized_clustered", first, (), split, args)


def wgmma(gpu, config, x, packed, scales, bias, bits) -> Plan:
    (m, k), n = (fixed(x.shape[0]), x.shape[1]), packed.shape[0]
    split = wgmma_split_of(gpu, config, m, n, k, bits)
    args = _args(split, x, packed, bias)
    source, first = FOLDER / "cuda_few_rows_wgmma.cu", (CTYPE[x.dtype], bits)
    return planned(source, "quantized_wgmma", first, (), split, args)


def _args(split, x, packed, bias) -> tuple:
    (m, k), n = (fixed(x.shape[0]), x.shape[1]), packed.shape[0]
    tensors = "x", "packed", "scales", NULL if bias is None else "bias", "y"
    return (*tensors, *places(split), i32(m), i32(n), i32(k), i64(line_of(x)))
