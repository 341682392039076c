"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, log2
from kernelwright.ops.norm.group_norm.heuristics import (
    CHANNELS_CONFIGS,
    CHANNELS_REGISTERS_CONFIGS,
    CHANNELS_SPLIT_CONFIGS,
    CLUSTER_CONFIGS,
    SPLIT_CONFIGS,
    spread_channels,
    spread_cluster,
    spread_registers,
    unsupported,
    unsupported_channels,
    unsupported_channels_registers,
    unsupported_channels_split,
    unsupported_cluster,
    unsupported_registers,
    unsupported_split,
)

from .tiling import BatchCall

__all__ = [
    "CHANNELS_CONFIGS",
    "CHANNELS_REGISTERS_CONFIGS",
    "CHANNELS_SPLIT_CONFIGS",
    "CLUSTER_CONFIGS",
    "SPLIT_CONFIGS",
]

SHORT = 2**14  # elements of a channel that a cluster normalizes faster than several launches
THREADS_CONFIGS = ({"threads": 256},)
REGISTERS_CONFIGS = CHANNELS_REGISTERS_CONFIGS
STEP_CONFIGS = {"split": SPLIT_CONFIGS[:1], "channels_split": CHANNELS_SPLIT_CONFIGS[:1]}
MOST = 2**28  # elements of which rungs of several launches compute statistics
# unroll: vectors that a thread has in flight; blocks: per multiprocessor, channels last
SCALE_CONFIGS = ({"threads": 256, "unroll": 4, "blocks": 8},)


def fits_channel(gpu, **args):
    """Requirements of rungs in which a block reads a channel element by element."""
    c = BatchCall(args)
    if why := unsupported(c, c.last):
        return why
    row = c.channels if c.last else c.length
    if c.steps != [row]:
        return "rows of x are not contiguous"
    n = args["x"].numel() // c.channels
    return f"a channel has {n} elements, more than {2**24}" if n > 2**24 else None


def fits_split(gpu, **args):
    return unsupported_split(BatchCall(args))


def fits_channels_split(gpu, **args):
    return unsupported_channels_split(gpu, BatchCall(args))


def fits_split_statistics(gpu, **args):
    return _too_many(args["x"]) or fits_split(gpu, **args)


def fits_channels_split_statistics(gpu, **args):
    return _too_many(args["x"]) or fits_channels_split(gpu, **args)


def _too_many(x):
    """The variance's error grows with the squares that a thread adds in turn: at 2^31 elements it
    was 12 to 17 ulp on an H200."""
    return f"{x.numel()} elements are more than {MOST}" if x.numel() > MOST else None


def fits_cluster(gpu, **args):
    return unsupported_cluster(gpu, BatchCall(args))


def fits_channels(gpu, **args):
    return unsupported_channels(gpu, BatchCall(args))


def fits_registers(gpu, **args):
    c = BatchCall(args)
    return unsupported(c, last=False) or unsupported_registers(gpu, c)


def fits_channels_registers(gpu, **args):
    return unsupported_channels_registers(gpu, BatchCall(args))


def fits_scale(gpu, **args):
    c = BatchCall(args)
    for name in ("mean", "var"):
        if args[name].dtype != torch.float32:
            return f"{name} is {args[name].dtype}, not float32"
    return unsupported(c, c.last)


def choose_cluster(gpu, **args):
    return spread_cluster(gpu, BatchCall(args))


def choose_channels(gpu, **args):
    return spread_channels(gpu, BatchCall(args))


def choose_registers(gpu, **args):
    return spread_registers(gpu, BatchCall(args))


choose_channels_registers = choose_registers


def order(gpu, **args):
    """Slabs in registers are read once; short channels fit in the shared memory of a cluster;
    others are split."""
    c = BatchCall(args)
    if c.last:
        return "cuda_channels_registers", "cuda_channels", "cuda_channels_split"
    few = args["x"].numel() <= c.channels * SHORT
    rungs = ("cuda_cluster", "cuda_split") if few else ("cuda_split", "cuda_cluster")
    return "cuda_registers", *rungs


def order_backward(gpu, **args):
    """Of channels of very short rows, PyTorch's kernel reads several at once: only a rung that does
    the same is called instead."""
    c = BatchCall(args)
    short = not c.last and c.length * args["x"].itemsize < 128
    return ("cuda_registers",) if short else order(gpu, **args)


def order_inference(gpu, **args):
    return ("cuda_scale",)


def order_inference_backward(gpu, **args):
    return ()


def order_step(gpu, **args):
    return "cuda_split", "cuda_channels_split"


def choose_channels_split(gpu, **args):
    """Few slabs have many partial sums each: fewer blocks are better, except in the backward, which
    needs more bytes in flight."""
    c = BatchCall(args)
    return CHANNELS_SPLIT_CONFIGS["gy" not in args and c.channels * c.itemsize <= 512]


def bucket(x, channels_last, **others):
    """Key of a call in the tuned table: dtype, layout, channels, elements of a channel."""
    channels = x.shape[2 if channels_last else 1]
    layout = "last" if channels_last else "first"
    return f"{kind(x.dtype)}/{layout}/{log2(channels)}/{log2(x.numel() // max(channels, 1))}"
