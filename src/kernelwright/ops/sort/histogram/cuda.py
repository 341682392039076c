"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f64, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import kind

from .heuristics import CTYPE, SHARED

CLEAR = 256  # threads that clear counts


def global_(gpu, config, x, bins, low, high):
    return _counted(gpu, config, "global", x, bins)


def shared(gpu, config, x, bins, low, high):
    return _counted(gpu, config, "shared", x, bins, shared=4 * bins)


def runs(gpu, config, x, bins, low, high):
    copies = min(config["block"] // 32, max(1, SHARED // (4 * bins)))
    return _counted(gpu, config, "runs", x, bins, i32(copies), shared=4 * bins * copies)


def _counted(gpu, config, rung, x, bins, *more, shared=0):
    block, vecs = config["block"], config["vecs"]
    width = min(16, x.align) // x.itemsize or 1
    clear = Launch(
        CudaKernel(_source("clear"), f"histogram_clear<{CLEAR}>"),
        (cdiv(bins, CLEAR), 1, 1), ("counts", i32(bins)), (CLEAR, 1, 1),
    )  # fmt: skip
    resident = 2048 // block * gpu.sms
    count = Launch(
        CudaKernel(
            _source(rung), f"histogram_{rung}<{CTYPE[kind(x.dtype)]}, {width}, {vecs}, {block}>"
        ),
        (max(1, min(cdiv(x.numel(), width * vecs * block), resident)), 1, 1),
        ("x", "counts", i64(x.numel()), i32(bins), f64("low"), f64("high"), *more),
        (block, 1, 1),
        shared,
        overlaps=True,
    )
    return Plan((clear, count))


def _source(rung):
    return Path(__file__).with_name(f"cuda_{rung}.cu")
