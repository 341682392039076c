"""Compile the kernels of this folder for sm_90a, and read what the compiler says of them."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from kernelwright.contract import CudaKernel
from kernelwright.toolchain import binary, nvrtc
from kernelwright.toolchain.compiled import Compiled

from .configs import Config

ARCH = "sm_90a"


def kernel(
    config: Config, layout: str, dtype: str = "__nv_bfloat16", epilogue: str = "kw::Plain"
) -> CudaKernel:
    """dtype and epilogue are C++ types."""
    expression = config.expression(dtype, layout[0] == "N", layout[1] == "T", epilogue)
    return CudaKernel(config.source, expression, config.blocks)


@cache
def compiled(kernel: CudaKernel) -> Compiled:
    return nvrtc.compile(kernel, ARCH)


def ahead(kernels: Iterable[CudaKernel]) -> None:
    """Fill the cache on all cores: a kernel takes a core some seconds."""
    spawn = multiprocessing.get_context("spawn")  # a fork would carry CUDA's state along
    with ProcessPoolExecutor(mp_context=spawn) as pool:
        list(pool.map(compiled, dict.fromkeys(kernels)))


def complaints(made: Compiled) -> list[str]:
    """Spills; and wgmma instructions that ptxas makes wait for each other (C7510 and others)."""
    used = binary.resources(made)
    found = [
        line for line in made.log.splitlines() if re.search(r"warning|serializ|\bC75\d\d", line)
    ]
    spilled = used.stack + used.spill_stores + used.spill_loads
    return [*found, f"{spilled} bytes of stack and spills"] if spilled else found
