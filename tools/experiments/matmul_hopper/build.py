"""Compiles kernels in parallel before they are launched; `python -m matmul_hopper.build` compiles
those that `verify` would otherwise compile one by one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from kernelwright.contract import H200, CudaKernel
from kernelwright.ops.matmul.gemm.ladder import LADDER, LADDER_LINEAR
from kernelwright.toolchain import nvrtc
from kernelwright.workbench.verify.cuda_kernels import kernels_of


def ahead(kernels: Iterable[CudaKernel]) -> None:
    """Fill the cache on all cores: a kernel takes a core a second."""
    spawn = multiprocessing.get_context("spawn")  # a fork would carry CUDA's state along
    with ProcessPoolExecutor(mp_context=spawn) as pool:
        list(pool.map(_compile, dict.fromkeys(kernels)))


def _compile(kernel: CudaKernel) -> None:
    nvrtc.compile(kernel, H200.arch)


def verified() -> set[CudaKernel]:
    """What `kernelwright verify matmul linear` launches of the rungs for Hopper."""
    return {
        kernel
        for of in (LADDER, LADDER_LINEAR)
        for rung in of.rungs
        if rung.name.startswith("cuda_wgmma")
        for config in rung.configs
        for kernel in kernels_of(
            of, rung, config, (c for c in of.operator.cases if c.use == "verify")
        )
    }


if __name__ == "__main__":
    ahead(verified())
