"""Causal attention over the tokens of a batch."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .operators import attention_varlen, softcapped


def causal_attention(
    q_BHTD: torch.Tensor,
    k_BGTD: torch.Tensor,
    v_BGTD: torch.Tensor,
    scale: float,
    dropout: float = 0.0,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """softmax(q k^T scale) v, in which each token attends to itself and the earlier ones.

    Args:
        k_BGTD, v_BGTD: G heads, each used by H / G heads of q.
        dropout: probability of dropping an attention weight; 0 with a window or a softcap.
        window: a token sees itself and the window - 1 tokens before it; 0 means all earlier ones.
        softcap: if above 0, scores become softcap tanh(score / softcap).

    Returns:
        (B, H, T, D).
    """
    if softcap or 0 < window < q_BHTD.shape[2]:
        return _with_limits(q_BHTD, k_BGTD, v_BGTD, scale, window, softcap)
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


def _with_limits(q_BHTD, k_BGTD, v_BGTD, scale: float, window: int, softcap: float) -> torch.Tensor:
    """The rows of the batch as packed sequences of equal lengths."""
    B, _, T, _ = q_BHTD.shape
    packed = (t.transpose(1, 2).flatten(0, 1) for t in (q_BHTD, k_BGTD, v_BGTD))
    ends = torch.arange(0, (B + 1) * T, T, dtype=torch.int32, device=q_BHTD.device)
    y_NHD = attention_varlen(
        *packed, ends, ends, T, T,
        is_causal=True, window=(window - 1, -1), softcap=softcap, scale=scale,
    )  # fmt: skip
    return y_NHD.unflatten(0, (B, T)).transpose(1, 2)


def attention_of_last(
    q_BH1D: torch.Tensor,
    k_BGSD: torch.Tensor,
    v_BGSD: torch.Tensor,
    mask_B11S: torch.Tensor,
    scale: float,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Attention of one token per row over the row's keys: (B, H, 1, D).

    Args:
        mask_B11S: is added to the scores: 0 or -inf.
    """
    H, G = q_BH1D.shape[1], k_BGSD.shape[1]
    if not softcap:
        return F.scaled_dot_product_attention(
            q_BH1D, k_BGSD, v_BGSD, mask_B11S, scale=scale, enable_gqa=H != G
        )
    wide = torch.promote_types(q_BH1D.dtype, torch.float32)
    q_BGRD = q_BH1D.unflatten(1, (G, H // G)).squeeze(3)
    scores_BGRS = softcapped((q_BGRD @ k_BGSD.mT).to(wide) * scale, softcap) + mask_B11S
    return (scores_BGRS.softmax(-1).to(q_BH1D.dtype) @ v_BGSD).flatten(1, 2).unsqueeze(2)
