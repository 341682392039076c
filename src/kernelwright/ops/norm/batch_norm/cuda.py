"""Launch plans of the CUDA rungs. The kernels are those of group_norm, cuda_scale.cu,
cuda_welford.cu and cuda_two_passes.cu."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.norm.group_norm.cuda import (
    channels_forward,
    channels_gradient,
    cluster_forward,
    cluster_gradient,
    registers_forward,
    registers_gradient,
    split_forward,
    split_gradient,
    split_gx,
    split_moments,
    split_sums,
)

from .tiling import BatchCall


def welford(gpu, config, **args):
    return _channel("welford", config, BatchCall(args))


def two_passes(gpu, config, **args):
    return _channel("two_passes", config, BatchCall(args))


def _channel(name, config, c):
    """One block per channel."""
    kernel = CudaKernel(
        c.folder / f"cuda_{name}.cu", f"batch_norm_{name}<{c.norm()}, {config['threads']}>"
    )
    rows = (1, c.length, 0, 1, c.channels) if c.last else (
        c.rows, c.length, c.channels * c.length, c.length, 1
    )  # fmt: skip
    numbers = (*map(i64, rows), f32("eps"), c.given)
    given = ("x", *c.pointers, "y", "mean", "rstd", "var", *numbers)
    return Plan((Launch(kernel, (c.channels, 1, 1), given, (config["threads"], 1, 1)),))


def split(gpu, config, **args):
    return split_forward(gpu, config, BatchCall(args))


def split_backward(gpu, config, **args):
    launches, scratch, _ = split_gradient(gpu, config, BatchCall(args))
    return Plan(launches, scratch)


channels_split, channels_split_backward = split, split_backward


def cluster(gpu, config, **args):
    return cluster_forward(gpu, config, BatchCall(args))


def cluster_backward(gpu, config, **args):
    return Plan((cluster_gradient(gpu, config, BatchCall(args))[0],))


def channels(gpu, config, **args):
    return channels_forward(gpu, config, BatchCall(args))


def channels_backward(gpu, config, **args):
    return Plan((channels_gradient(gpu, config, BatchCall(args))[0],))


def registers(gpu, config, **args):
    return registers_forward(config, BatchCall(args))


def registers_backward(gpu, config, **args):
    return Plan((registers_gradient(config, BatchCall(args))[0],))


channels_registers, channels_registers_backward = registers, registers_backward


# the steps for a batch that is split over processes


def split_stats(gpu, config, **args):
    c = BatchCall(args)
    rstd = Scratch(TensorSpec.contiguous((c.channels,), torch.float32))
    launch, scratch = split_moments(gpu, config, c, ("mean", "rstd", "var"), f32(0.0), 0.0)
    return Plan((launch,), {**scratch, "rstd": rstd})


def split_backward_reduce(gpu, config, **args):
    launch, scratch = split_sums(gpu, config, BatchCall(args), unused="total")
    return Plan((launch,), scratch)


def split_backward_elemt(gpu, config, **args):
    return Plan((split_gx(gpu, config, BatchCall(args), overlaps=False),))


channels_split_stats, channels_split_backward_reduce = split_stats, split_backward_reduce
channels_split_backward_elemt = split_backward_elemt


def scale(gpu, config, **args):
    c = BatchCall(args)
    threads, unroll = config["threads"], config["unroll"]
    values = f"{CTYPE[c.dtype]}, {CTYPE[c.parameter_dtype]}"
    given = ("x", *c.pointers, "mean", "var", "y")
    if c.last:
        strips = cdiv(c.channels // c.width, 32)
        down = cdiv(c.length, threads // 32 * unroll)
        blocks = strips * min(down, cdiv(gpu.sms * config["blocks"], strips))
        name, width = "columns", c.width
        numbers = (i64(c.length), i64(c.steps[0]), i32(c.channels), i32(strips))
    else:
        count = args["x"].numel()
        width = math.gcd(16 // c.itemsize, count, args["x"].align // c.itemsize)
        blocks = cdiv(count, threads * unroll * width)
        name, numbers = "flat", (i64(count), i32(c.length), i32(c.channels))
    kernel = CudaKernel(
        c.folder / "cuda_scale.cu",
        f"batch_norm_scale_{name}<{values}, {width}, {threads}, {unroll}>",
    )
    scalars = (*numbers, f32("eps"), c.given)
    return Plan((Launch(kernel, (blocks, 1, 1), (*given, *scalars), (threads, 1, 1)),))
