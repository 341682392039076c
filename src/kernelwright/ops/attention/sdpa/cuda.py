"""Launches of the CUDA C++ rungs that run on every GPU."""

from __future__ import annotations

import struct
from pathlib import Path

import torch

from kernelwright.contract import (
    CudaKernel,
    Launch,
    Plan,
    Scratch,
    TensorSpec,
    f32,
    i64,
)
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.plan import Scalar, packed
from kernelwright.contract.template_args import CTYPE, boolean

from .call import Call

FOLDER = Path(__file__).parent
TILED_ROWS, TILED_THREADS, SHARE = 32, 128, 4  # of cuda_tiled.cu
MMA_ROWS, MMA_THREADS = 64, 128  # of cuda_mma.cu
STAGED_THREADS = 256


def staged(gpu, config, **args):
    c = Call(args)
    rows, kind, causal = c.b * c.h * c.length, CTYPE[c.dtype], boolean(c.causal)
    scores, values = rows * c.s, rows * c.dv

    def launch(name, threads, given):
        kernel = CudaKernel(FOLDER / "cuda_staged.cu", name)
        return Launch(kernel, (cdiv(threads, STAGED_THREADS), 1, 1), given, (STAGED_THREADS, 1, 1))

    call = described(c)
    launches = (
        launch(f"attention_scores<{kind}, {causal}>", scores,
               ("q", "k", "scores", call, f32("scale"), i64(scores))),
        launch(f"attention_softmax<{causal}>", rows * 32, ("scores", "lse", call, i64(rows))),
        launch(f"attention_values<{kind}, {causal}>", values,
               ("scores", "v", "y", call, i64(values))),
    )  # fmt: skip
    spec = TensorSpec.contiguous((rows, c.s), torch.float32)
    return Plan(launches, {"scores": Scratch(spec)})


def tiled(gpu, config, **args):
    c = Call(args)
    per = cdiv(max(c.d, c.dv), SHARE)
    name = f"attention_tiled<{CTYPE[c.dtype]}, {per}, {boolean(c.causal)}>"
    grid = (cdiv(c.length, TILED_ROWS) * c.b * c.h, 1, 1)
    given = ("q", "k", "v", "y", "lse", described(c), f32("scale"))
    kernel = CudaKernel(FOLDER / "cuda_tiled.cu", name)
    return Plan((Launch(kernel, grid, given, (TILED_THREADS, 1, 1)),))


def mma(gpu, config, **args):
    c = Call(args)
    wide = 64 * cdiv(max(c.d, c.dv), 64)
    cols = config["cols"]
    name = f"attention_mma<{CTYPE[c.dtype]}, {wide}, {cols}, {boolean(c.causal)}>"
    grid = (cdiv(c.length, MMA_ROWS) * c.b * c.h, 1, 1)
    given = ("q", "k", "v", "y", "lse", described(c), f32("scale"))
    shared = 2 * wide * (MMA_ROWS + 4 * cols)
    kernel = CudaKernel(FOLDER / "cuda_mma.cu", name)
    return Plan((Launch(kernel, grid, given, (MMA_THREADS, 1, 1), shared),))


def described(c: Call) -> Scalar:
    """attention::Call of call.cuh."""
    strides = [s for name in ("q", "k", "v", "y") for s in c.specs[name].stride()]
    sizes = (c.h, c.group, c.length, c.s, c.d, c.dv)
    return packed(struct.pack("<16q6i", *strides, *sizes))
