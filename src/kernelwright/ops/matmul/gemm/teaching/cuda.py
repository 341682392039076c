"""Launch plans of the teaching steps for contiguous rows. The kernels are explained in their .cu
files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE


def naive(gpu, config, a, b, tf32=False):
    return _by_rows("naive", a, b, (8, 32), (32, 8, 1))


def coalesced(gpu, config, a, b, tf32=False):
    return _by_rows("coalesced", a, b, (32, 8), (32, 8, 1))


def shared(gpu, config, a, b, tf32=False):
    return _by_rows("shared", a, b, (32, 32), (32, 32, 1))


def dynamic(gpu, config, a, b, tf32=False):
    tile = config["tile"]
    return _by_rows("dynamic", a, b, (tile, tile), (tile, tile, 1), 2 * 4 * tile * tile)


def column(gpu, config, a, b, tf32=False):
    return _by_rows("column", a, b, (64, 64), (512, 1, 1))


def square(gpu, config, a, b, tf32=False):
    return _by_rows("square", a, b, (128, 128), (256, 1, 1))


def vec16(gpu, config, a, b, tf32=False):
    return _by_rows("vec16", a, b, (128, 128), (256, 1, 1))


def banks(gpu, config, a, b, tf32=False):
    return _by_rows("banks", a, b, (128, 128), (256, 1, 1))


def double(gpu, config, a, b, tf32=False):
    return _by_rows("double", a, b, (128, 128), (256, 1, 1))


def warp(gpu, config, a, b, tf32=False):
    return _by_rows("warp", a, b, (128, 128), (256, 1, 1))


def staged(gpu, config, a, b, tf32=False):
    return _by_rows("staged", a, b, (128, 128), (256, 1, 1))


def _by_rows(trick, a, b, tile, block, shared=0) -> Plan:
    """One block per tile (columns, rows) of c, for operands whose rows are contiguous."""
    (m, k), n = a.shape, b.shape[1]
    launch = Launch(
        CudaKernel(_source(trick), f"matmul_{trick}"),
        grid=(cdiv(n, tile[0]), cdiv(m, tile[1]), 1),
        block=block,
        args=("a", "b", "c", i32(m), i32(n), i32(k), i64(a.stride(0)), i64(b.stride(0))),
        shared=shared,
    )
    return Plan((launch,))


def wmma(gpu, config, a, b, tf32=False):
    (m, k), n = a.shape, b.shape[1]
    launch = Launch(
        CudaKernel(_source("wmma"), f"matmul_wmma<{CTYPE[a.dtype]}>", emulated=False),
        grid=(cdiv(n, 128), cdiv(m, 128), 1),
        block=(256, 1, 1),
        args=("a", "b", "c", i32(m), i32(n), i32(k), i64(a.stride(0)), i64(b.stride(0))),
    )
    return Plan((launch,))


def _source(trick: str) -> Path:
    return Path(__file__).with_name(f"cuda_{trick}.cu")
