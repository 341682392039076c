"""Which activations a block keeps for its backward, and which it computes again."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

POLICIES = ("none", "selective", "full")

_aten = torch.ops.aten
#: Costly to compute again: products and attention.
_KEPT = {
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
}
_KEPT_OF_OURS = ("kernelwright::matmul", "kernelwright::linear")


def apply(model: nn.Module, policy: str) -> None:
    """Make the blocks of a model follow a policy.

    "none" keeps every activation. "selective" keeps results of products and of attention, and
    computes norms, activations and dropout again. "full" keeps a block's input alone.
    """
    if policy == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if policy == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _choose)
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, **options)


def _choose(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    if op in _KEPT or op.name().startswith(_KEPT_OF_OURS):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
