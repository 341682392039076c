"""Causal attention over the tokens of a batch, or of one new token over a cache."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .cache import Cache


def causal_attention(
    q_BHTD: torch.Tensor,
    k_BGTD: torch.Tensor,
    v_BGTD: torch.Tensor,
    scale: float,
    dropout: float = 0.0,
    cache: Cache | None = None,
    layer: int = 0,
) -> torch.Tensor:
    """softmax(q k^T scale) v, in which each token attends to itself and the earlier ones.

    Args:
        k_BGTD, v_BGTD: G heads, each used by H / G heads of q.
        dropout: probability of dropping an attention weight.
        cache: stores keys and values. Either its rows are empty, or q is one token per row.

    Returns:
        (B, H, T, D).
    """
    if cache is not None and q_BHTD.shape[2] == 1:
        return cache.attend(layer, q_BHTD, k_BGTD, v_BGTD, scale)
    if cache is not None:
        cache.begin(layer, k_BGTD, v_BGTD)
    return F.scaled_dot_product_attention(
        q_BHTD,
        k_BGTD,
        v_BGTD,
        None,
        dropout,
        True,
        scale=scale,
        enable_gqa=q_BHTD.shape[1] != k_BGTD.shape[1],
    )
