"""Peers of attention: each of torch's backends, and compiled flex_attention.

PyTorch selects one of the backends for a call; the rung `native` is FlashAttention-2 if that
backend supports the call.
"""

from __future__ import annotations

from functools import partial

import torch

from kernelwright.contract import Peer


def _cudnn(q, k, v, mask, seed, causal, mask_grad, scale, p):
    _plain(mask, seed, causal, q, k)

    def call():
        out = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        )
        return out[0], out[1].view(q.shape[:3])

    return call


def _cudnn_backward(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    _plain(mask, seed, causal, q, k)
    own = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False, scale=scale
    )
    y, lse, cum_q, cum_k, most_q, most_k, philox_seed, philox_offset, _ = own
    of_mask = q.new_empty(0)
    return lambda: (
        *torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            gy, q, k, v, y, lse, philox_seed, philox_offset, None, cum_q, cum_k, most_q, most_k,
            0.0, causal, scale=scale,
        ),
        of_mask,
    )  # fmt: skip


def _flex(q, k, v, mask, seed, causal, mask_grad, scale, p):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    _plain(mask, seed, causal, q, k)
    blocks = None
    if causal:
        blocks = create_block_mask(
            lambda b, h, i, j: j <= i, None, None, q.shape[2], k.shape[2], device=str(q.device)
        )
    call = torch.compile(flex_attention)
    options = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1], "return_lse": True}
    return partial(call, q, k, v, block_mask=blocks, **options)


def _plain(mask, seed, causal, q, k) -> None:
    if mask is not None or seed is not None or (causal and q.shape[2] != k.shape[2]):
        raise NotImplementedError("masks, dropped weights and causal rectangles are not compared")


PEERS = (
    Peer("cudnn", "scaled_dot_product_attention", _cudnn, "torch"),
    Peer("flex", "scaled_dot_product_attention", _flex, "torch"),
    Peer("cudnn", "scaled_dot_product_attention.backward", _cudnn_backward, "torch"),
)
