"""Which activations a block saves for its backward, and which it recomputes."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

POLICIES = ("auto", "none", "light", "selective", "full")
#: "light" applies to one in this many blocks.
LIGHT = 3


def resolved(policy: str, device: torch.device, compiled: bool) -> str:
    """The policy that "auto" stands for: "light" on a GPU, whose memory limits the batch; "none" on
    a CPU and under torch.compile, which itself decides what to save, so that all blocks are equal.
    """
    if policy != "auto":
        return policy
    return "light" if device.type == "cuda" and not compiled else "none"


def apply(blocks: Iterable[nn.Module], policy: str) -> None:
    """Apply a policy other than "auto" to the blocks of a model.

    "none" saves every activation. "selective" recomputes the result of the MLP's activation
    function, the largest that needs no matrix product; "light" does so in every third block. "full"
    saves only a block's input.
    """
    for i, block in enumerate(blocks):
        if policy == "full":
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        block.recompute_activation = policy == "selective" or (policy == "light" and i % LIGHT == 0)
