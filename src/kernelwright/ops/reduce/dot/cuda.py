"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import off_boundary
from kernelwright.contract.template_args import CTYPE

LEVELS = 3  # dot.cuh's kLevels


def atomics(gpu, config, x, other):
    return _atomics("atomics", gpu, config, x, other)


def half2(gpu, config, x, other):
    return _atomics("half2", gpu, config, x, other)


def fast_atomic(gpu, config, x, other):
    return _atomics("fast_atomic", gpu, config, x, other)


def last_block(gpu, config, x, other):
    blocks = _blocks(gpu, config, x)
    sums = Scratch(TensorSpec.contiguous((blocks,), torch.float32))
    return _plan("last_block", config, blocks, sums, x, other)


def vec16_backward(gpu, config, gy, x, other):
    launch = Launch(
        _kernel("vec16", f"dot_bwd_vec16<{CTYPE[x.dtype]}, {config['block']}>"),
        (cdiv(x.numel(), config["block"] * (16 // x.itemsize)), 1, 1),
        ("gy", "x", "other", "gx", "gother", *_sizes(x, other)),
        (config["block"], 1, 1),
    )
    return Plan((launch,))


def _atomics(rung, gpu, config, x, other):
    sums = Scratch(TensorSpec.contiguous((LEVELS, 2), x.dtype), zero=True)
    return _plan(rung, config, _blocks(gpu, config, x), sums, x, other)


def _plan(rung, config, blocks, sums, x, other):
    shape = f"{CTYPE[x.dtype]}, {config['block']}, {config['vecs']}"
    launch = Launch(
        _kernel(rung, f"dot_{rung}<{shape}>"),
        (blocks, 1, 1),
        ("x", "other", "sums", "arrived", "y", *_sizes(x, other)),
        (config["block"], 1, 1),
    )
    arrived = Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True)
    return Plan((launch,), {"sums": sums, "arrived": arrived})


def _blocks(gpu, config, x):
    """As many blocks as the GPU holds at once, if each thread then has a tile."""
    tile = config["block"] * config["vecs"] * (16 // x.itemsize)
    return max(1, min(config["blocks_per_sm"] * gpu.sms, cdiv(x.numel(), tile)))


def _sizes(x, other):
    return i64(x.numel()), i32(off_boundary({"x": x, "other": other}) is None)


def _kernel(rung, name):
    return CudaKernel(Path(__file__).with_name(f"cuda_{rung}.cu"), name)
