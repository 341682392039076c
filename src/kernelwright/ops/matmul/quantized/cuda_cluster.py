"""The launch of cuda_few_rows_cluster.cu, which is explained there."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, Plan, i32, i64
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.cuda_few_rows_cluster import places, planned
from kernelwright.ops.matmul.gemm.few_rows_cluster_tiling import split_of
from kernelwright.ops.matmul.gemm.few_rows_tiling import line_of

SOURCE = Path(__file__).parent / "cuda_few_rows_cluster.cu"


def plan(gpu, config, x, packed, scales, bias, bits) -> Plan:
    (m, k), n = x.shape, packed.shape[0]
    split = split_of(gpu, config, m, n, k, bits)
    tensors = "x", "packed", "scales", NULL if bias is None else "bias", "y"
    args = (*tensors, *places(split), i32(m), i32(n), i32(k), i64(line_of(x)))
    return planned(SOURCE, "quantized_clustered", (CTYPE[x.dtype], bits, split.depth // 128), (), split, args)
