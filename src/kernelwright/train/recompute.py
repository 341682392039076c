"""Which activations a block keeps for its backward, and which it computes again."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from torch import nn
from torch.utils.checkpoint import checkpoint

POLICIES = ("none", "selective", "full")


def apply(blocks: Iterable[nn.Module], policy: str) -> None:
    """Make blocks of a model follow a policy.

    "none" keeps every activation. "selective" computes the result of the MLP's activation function
    again, the largest that costs no product. "full" keeps a block's input alone.
    """
    part = {"none": None, "selective": "mlp_end", "full": "forward"}[policy]
    if part is None:
        return
    for block in blocks:
        again = functools.partial(checkpoint, getattr(block, part), use_reentrant=False)
        setattr(block, part, again)
