"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, log2
from kernelwright.ops.norm.group_norm.heuristics import (
    CHANNELS_CONFIGS,
    CHANNELS_SPLIT_CONFIGS,
    CLUSTER_CONFIGS,
    SPLIT_CONFIGS,
    spread_channels,
    spread_cluster,
    unsupported,
    unsupported_channels,
    unsupported_channels_split,
    unsupported_cluster,
    unsupported_split,
)

from .tiling import BatchCall

__all__ = [
    "CHANNELS_CONFIGS",
    "CHANNELS_SPLIT_CONFIGS",
    "CLUSTER_CONFIGS",
    "SPLIT_CONFIGS",
]

THREADS_CONFIGS = ({"threads": 256},)
STEP_CONFIGS = SPLIT_CONFIGS[:1]
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


def fits_cluster(gpu, **args):
    return unsupported_cluster(gpu, BatchCall(args))


def fits_channels(gpu, **args):
    return unsupported_channels(gpu, BatchCall(args))


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


def order(gpu, **args):
    """No rung: none is proven on a GPU yet."""
    return ()


def bucket(x, channels_last, **others):
    """Key of a call in the tuned table: dtype, layout, channels, elements of a channel."""
    channels = x.shape[2 if channels_last else 1]
    layout = "last" if channels_last else "first"
    return f"{kind(x.dtype)}/{layout}/{log2(channels)}/{log2(x.numel() // max(channels, 1))}"
