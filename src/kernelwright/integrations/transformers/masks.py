"""Attention masks that a compiled model does not need.

If no token is padded or packed, transformers creates no mask. It calls attention with
`is_causal=True` instead, which allows the fastest attention kernels and grouped keys and values
without copies. To find out, transformers inspects the given mask and positions, which is impossible
while torch.compile traces. A traced model therefore creates a mask of shape (B, 1, T, T) even if it
is given neither a mask nor positions.
"""

from __future__ import annotations

from typing import Any

import torch

from .binding import is_ours

# arguments that may require a mask other than the causal one
_DECIDE = ("attention_mask", "position_ids", "past_key_values", "is_causal")


def only_causal(model: torch.nn.Module, given: dict[str, Any]) -> bool:
    """Whether torch.compile traces the call and the causal mask is the only one.

    Args:
        model: a model whose decoder makes causal masks, with or without a window.
        given: the call's arguments by name.
    """
    if not torch.compiler.is_dynamo_compiling():
        return False
    config, decoder = model.config, getattr(model, model.base_model_prefix)
    return (
        config._attn_implementation == "sdpa"
        and getattr(config, "is_causal", True)
        and not getattr(config, "use_bidirectional_attention", False)
        and all(given.get(name) is None for name in _DECIDE)
        and all(
            is_ours(layer.forward)  # passes `only_causal` to its attention
            for layer in (decoder.layers if hasattr(decoder, "layers") else decoder.h)
        )
    )
