"""A product whose operand is recomputed in the backward instead of being saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from .operators import linear


def activated_linear(
    activate: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    recompute: bool,
) -> torch.Tensor:
    """linear(activate(*inputs), weight, bias).

    The activation saves its inputs for its own backward. Its result is the largest tensor of a
    block that only the weight's gradient needs, and one pass over the inputs recomputes it.

    Args:
        activate: an operator without randomness.
        recompute: whether to recompute its result in the backward instead of saving it: the same
            bits, if `kw.use` then selects the same rung. Unlike with a checkpoint around both, the
            product is not recomputed.
    """
    if not recompute or not torch.is_grad_enabled():
        return linear(activate(*inputs), weight, bias)
    if torch.compiler.is_compiling():  # supports no hooks, but does not recompute the product
        hidden = checkpoint(activate, *inputs, use_reentrant=False, preserve_rng_state=False)
        return linear(hidden, weight, bias)
    hidden = activate(*inputs)
    storage = hidden.untyped_storage()._cdata

    def pack(saved: torch.Tensor) -> Any:
        if saved.untyped_storage()._cdata != storage:
            return saved
        return saved.shape, saved.stride(), saved.storage_offset()

    def unpack(packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        with torch.no_grad():
            return activate(*inputs).as_strided(*packed)

    with saved_tensors_hooks(pack, unpack):
        return linear(hidden, weight, bias)
