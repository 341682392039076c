"""Launches of the CUDA C++ rung whose blocks iterate over rows, with several vectors per thread."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, f64, i64
from kernelwright.contract.arithmetic import cdiv

from .call import STATIC, Call, rows_of, shape, walk_bytes, whole
from .cuda import chain, given

SOURCE = Path(__file__).parent / "cuda_walk.cu"
SYSTEM = 1024  # bytes of shared memory that the system reserves per block


def walk(gpu, config, **args):
    c = Call(args)
    pieces, threads = shape(c, config)
    rows, shared = rows_of(threads), walk_bytes(c, config)
    most = (gpu.shared_per_block + SYSTEM) // (shared + SYSTEM + STATIC)
    blocks = max(1, min(config["resident"] // (threads * rows), most))
    constants = f"{chain(c)}, {pieces}, {threads}, {rows}, {blocks}, {whole(c, pieces, threads)}"
    launch = Launch(
        CudaKernel(SOURCE, f"chain_fwd_walk<{constants}>"),
        grid=(min(cdiv(c.rows, rows), gpu.sms * blocks), 1, 1),
        block=(threads, rows, 1),
        args=(
            *(*c.pointers, *map(i64, c.sizes), f64("p"), f32("eps"), given(c)),
            f32(1.0 / c.cols),
        ),
        shared=shared,
    )
    return Plan((launch,))
