"""Peers of embedding; imported only for timing."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer


def _liger(weight, indices, num_weights, padding_idx):
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction

    return lambda: LigerEmbeddingFunction.apply(weight, indices)


def _liger_backward(gy, indices, num_weights, padding_idx):
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction

    weight = torch.zeros(
        num_weights, gy.shape[-1], dtype=gy.dtype, device=gy.device, requires_grad=True
    )
    y = LigerEmbeddingFunction.apply(weight, indices)
    return lambda: torch.autograd.grad(y, weight, gy, retain_graph=True)[0]


PEERS = (
    Peer("liger", "embedding", _liger, "liger_kernel"),
    Peer("liger", "embedding.backward", _liger_backward, "liger_kernel"),
)
