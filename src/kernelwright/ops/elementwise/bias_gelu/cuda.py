"""Launches of the CUDA C++ rung."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import abreast, cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .tiling import WARP, rows_of

SOURCE = Path(__file__).parent / "cuda_vec16.cu"


def vec16(gpu, config, x, bias, approximate):
    rows, cols, stride = rows_of(x)
    block, unroll = config["block"], config["unroll"]
    template = f"{_formula(x, approximate)}, {block}, {unroll}, {boolean(config['stream'])}"
    launch = Launch(
        CudaKernel(SOURCE, f"bias_gelu_fwd_vec16<{template}>"),
        grid=(cdiv(x.numel(), block * unroll * (16 // x.itemsize)), 1, 1),
        block=(block, 1, 1),
        args=("x", "bias", "y", i64(rows), i32(cols), i64(stride)),
    )
    return Plan((launch,))


def vec16_backward(gpu, config, gy, x, bias, approximate):
    rows, cols, x_stride = rows_of(x)
    down = config["down"]
    strips = cdiv(cols, WARP * (16 // x.itemsize))
    parts = abreast(rows, down, strips, config["blocks_per_sm"] * gpu.sms)
    template = f"{_formula(x, approximate)}, {down}, {config['stages']}"
    strides = i64(rows_of(gy)[2]), i64(x_stride)
    walk = Launch(
        CudaKernel(SOURCE, f"bias_gelu_bwd_vec16<{template}>"),
        grid=(strips, parts, 1),
        block=(WARP, down, 1),
        args=(
            *("gy", "x", "bias", "gx", "gbias", "handed"),
            *(i32(rows), i32(cols), *strides),
        ),
    )
    handed = TensorSpec.contiguous((parts, strips, 16 // x.itemsize, WARP), torch.int64)
    return Plan((walk,), {"handed": Scratch(handed, zero=True)})


def _formula(x, approximate) -> str:
    return f"{CTYPE[x.dtype]}, {boolean(approximate == 'tanh')}"
