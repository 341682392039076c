"""dropout elsewhere. PyTorch's own keeps a mask and takes no seed, so it is a peer, no rung."""

from __future__ import annotations

import torch

from kernelwright.contract.peer import Peer


def native(x, seed, p):
    return lambda: torch.nn.functional.dropout(x, p)


def native_backward(gy, seed, p):
    _, mask = torch.native_dropout(gy, p, True)
    scale = 1 / (1 - p)
    return lambda: torch.ops.aten.native_dropout_backward(gy, mask, scale)


PEERS = (
    Peer("torch", "dropout", native, "torch", random=True),
    Peer("torch", "dropout.backward", native_backward, "torch", random=True),
)
