"""Launches of the CUDA C++ rung."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv

from .shape import WARP, rows_of, shares

SOURCE = Path(__file__).parent / "cuda_vec16.cu"
CTYPE = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}


def vec16(gpu, config, x, bias, approximate):
    rows, cols, stride = rows_of(x)
    block, unroll = config["block"], config["unroll"]
    template = f"{_formula(x, approximate)}, {block}, {unroll}, {_bool(config['stream'])}"
    launch = Launch(
        CudaKernel(SOURCE, f"bias_gelu_fwd_vec16<{template}>"),
        grid=(cdiv(x.numel(), block * unroll * (16 // x.itemsize)), 1, 1),
        block=(block, 1, 1),
        args=("x", "bias", "y", i64(rows), i32(cols), i64(stride)),
    )
    return Plan((launch,))


def vec16_backward(gpu, config, gy, x, bias, approximate):
    rows, cols, x_stride = rows_of(x)
    down, unroll = config["down"], config["unroll"]
    strips = cdiv(cols, WARP * (16 // x.itemsize))
    parts, share = shares(rows, strips, config["blocks_per_sm"] * gpu.sms)
    template = f"{_formula(x, approximate)}, {down}, {unroll}, {_bool(config['stream'])}"
    strides = i64(rows_of(gy)[2]), i64(x_stride), i64(share)
    walk = Launch(
        CudaKernel(SOURCE, f"bias_gelu_bwd_vec16<{template}>"),
        grid=(strips, parts, 1),
        block=(WARP, down, 1),
        args=("gy", "x", "bias", "gx", "part", i64(rows), i32(cols), *strides),
    )
    add = Launch(
        CudaKernel(SOURCE, f"bias_gelu_bwd_parts<{CTYPE[x.dtype]}>"),
        grid=(cdiv(cols, WARP), 1, 1),
        block=(WARP, 8, 1),
        args=("part", "gbias", i32(parts), i32(cols)),
        overlaps=True,
    )
    part = TensorSpec.contiguous((parts, cols), torch.float32)
    return Plan((walk, add), {"part": Scratch(part)})


def _formula(x, approximate) -> str:
    return f"{CTYPE[x.dtype]}, {_bool(approximate == 'tanh')}"


def _bool(b: bool) -> str:
    return "true" if b else "false"
