"""Launch of gemm/cuda_integers_stream.cu, which is in the folder of the Hopper headers that it
includes."""

from __future__ import annotations

from kernelwright.ops.matmul.gemm.stream import cuda


def plan(gpu, config, **args):
    return cuda.plan_integers(gpu, config, **args)
