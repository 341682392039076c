"""The sequence of PyTorch's operators, with PyTorch's own random numbers."""

from __future__ import annotations

import torch

from kernelwright.contract.peer import Peer

from .definition import cleaned, filtered


def sequence(logits, state, each, temperature, top_k, top_p, min_p, filtered):
    """temperature, top_k and the other parameters for all rows, or one column each."""
    how = (temperature, top_k, top_p, min_p)
    if each is not None:
        how = each[:, :, None].unbind(1)

    def call():
        p = choices(cleaned(logits.float()).flatten(0, -2) / how[0], *how[1:]).softmax(-1)
        return (p / torch.empty_like(p).exponential_()).argmax(-1).view(logits.shape[:-1])

    return call


choices = filtered
PEERS = (Peer("torch", "sample", sequence, "torch", random=True),)
