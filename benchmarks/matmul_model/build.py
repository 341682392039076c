"""Compiles kernels in parallel before they are launched."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from kernelwright.contract import H200, CudaKernel
from kernelwright.toolchain import nvrtc


def ahead(kernels: Iterable[CudaKernel]) -> None:
    """Fill the cache on all cores: a kernel takes a core a second."""
    spawn = multiprocessing.get_context("spawn")  # a fork would carry CUDA's state along
    with ProcessPoolExecutor(mp_context=spawn) as pool:
        list(pool.map(_compile, dict.fromkeys(kernels)))


def _compile(kernel: CudaKernel) -> None:
    nvrtc.compile(kernel, H200.arch)
