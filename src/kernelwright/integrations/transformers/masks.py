"""Causal masks that a compiled model does without.

Where no token is padded or packed, transformers makes no mask: attention is told that it is causal,
has its fastest kernels then, and takes grouped keys and values as they are. It finds out by looking
at the mask and the positions that it is given, which it cannot while torch.compile traces. So there
it makes a mask of (B, 1, T, T) even where it is given neither.
"""

from __future__ import annotations

from typing import Any

import torch

from . import forwards

# arguments that another mask than the causal one may come from
_DECIDE = ("attention_mask", "position_ids", "past_key_values", "is_causal")


def only_causal(model: torch.nn.Module, given: dict[str, Any]) -> bool:
    """Is the call traced by torch.compile, and its mask the causal one alone?

    Args:
        model: whose decoder makes causal masks, with a window or without.
        given: arguments of the call by name.
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
            any(forwards.takes(layer, forward) for forward in forwards.LAYERS)
            for layer in (decoder.layers if hasattr(decoder, "layers") else decoder.h)
        )
    )
