"""Which activations a block saves for its backward, and which it recomputes."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from torch import nn
from torch.utils.checkpoint import checkpoint

POLICIES = ("none", "selective", "full")


def apply(blocks: Iterable[nn.Module], policy: str) -> None:
    """Apply a policy to the blocks of a model.

    "none" saves every activation. "selective" recomputes the result of the MLP's activation
    function, the largest that needs no matrix product. "full" saves only a block's input.
    """
    part = {"none": None, "selective": "mlp_end", "full": "forward"}[policy]
    if part is None:
        return
    for block in blocks:
        again = functools.partial(checkpoint, getattr(block, part), use_reentrant=False)
        setattr(block, part, again)
