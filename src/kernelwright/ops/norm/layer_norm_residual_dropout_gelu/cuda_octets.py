"""Launches of the CUDA C++ rung with several vectors per thread."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, f64, i64
from kernelwright.contract.arithmetic import cdiv

from .call import Call, shape, whole
from .cuda import chain, given

SOURCE = Path(__file__).parent / "cuda_octets.cu"


def octets(gpu, config, **args):
    c = Call(args)
    pieces, threads = shape(c, config)
    rows = 4 if threads == 32 else 1  # per block, where no barrier is needed
    constants = f"{chain(c)}, {pieces}, {threads}, {rows}, {whole(c, pieces, threads)}"
    launch = Launch(
        CudaKernel(SOURCE, f"chain_fwd_octets<{constants}>"),
        grid=(cdiv(c.rows, rows), 1, 1),
        block=(threads, rows, 1),
        args=(
            *(*c.pointers, *map(i64, c.sizes), f64("p"), f32("eps"), given(c)),
            f32(1.0 / c.cols),
        ),
    )
    return Plan((launch,))
