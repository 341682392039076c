"""Attention of transformers models, selected by `attn_implementation="kernelwright"`."""

from __future__ import annotations

from typing import Any

import torch

NAME = "kernelwright"
#: Arguments by which models change scores or weights and which this attention does not support.
UNKNOWN = ("softcap", "s_aux", "head_mask")


def register_attention() -> str:
    """Register `attn_implementation="kernelwright"` with transformers, for from_pretrained,
    from_config and set_attn_implementation. Masks are created as for "sdpa". Continuous batching
    (`generate_batch`) then attends to keys in their blocks, with no mask.

    Returns:
        "kernelwright", to be passed as attn_implementation.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    from . import paged

    AttentionInterface.register(NAME, attention)
    AttentionInterface.register(paged.NAME, paged.paged_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls for each layer: (B, H, L, D) to (B, L, H, D); it returns
    no weights.

    Keys and values keep their own number of heads, and the result is in the order of the tokens, so
    nothing is repeated or copied.

    Raises:
        NotImplementedError: the model modifies scores in a way that is not supported here.
    """
    import kernelwright as kw

    for name in UNKNOWN:
        if options.get(name) is not None:
            raise NotImplementedError(
                f"{name}: is not supported by attn_implementation={NAME!r}; use 'eager'"
            )
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    # one query attends to the whole cache; a given mask includes causality
    causal = causal and query.shape[2] > 1 and attention_mask is None
    mask = attention_mask
    if position_bias is not None:
        mask = position_bias if mask is None else _biased(position_bias, mask)
        if causal:
            seen = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
            mask, causal = _biased(mask, seen), False
    y = kw.scaled_dot_product_attention(
        query, key, value, mask, dropout, causal, scaling, enable_gqa=True
    )
    return y.transpose(1, 2).contiguous(), None


def _biased(bias: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype == torch.bool:
        return bias.masked_fill(~mask, -torch.inf)
    return bias + mask
