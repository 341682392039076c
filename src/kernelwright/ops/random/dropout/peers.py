"""Peers of dropout. PyTorch's stores a mask and takes no seed: a peer, not a rung."""

from __future__ import annotations

import torch
from torch.nn.functional import dropout

from kernelwright.contract.peer import Peer


def native(x, seed, p):
    return lambda: dropout(x, p)


def native_backward(gy, seed, p):
    _, mask = torch.native_dropout(gy, p, True)
    scale = 1 / (1 - p)
    return lambda: torch.ops.aten.native_dropout_backward(gy, mask, scale)


def chain(x, bias, residual, p):
    return dropout(x if bias is None else x + bias, p) + residual


def _chain(compiled):
    """The forward of the chain, in eager mode or fused by torch.compile."""

    def make(x, bias, residual, seed, p):
        fn = torch.compile(chain, dynamic=False) if compiled else chain
        p = 0.0 if seed is None else p

        def call():
            with torch.no_grad():
                return fn(x, bias, residual, p)

        return call

    return make


def _chain_backward(compiled):
    def make(gy, bias, seed, p):
        fn = torch.compile(chain, dynamic=False) if compiled else chain
        x = torch.zeros_like(gy, requires_grad=True)
        leaves = [x] if bias is None else [x, bias.detach().requires_grad_()]
        y = fn(x, *leaves[1:] or [None], gy, 0.0 if seed is None else p)
        nothing = gy.new_empty(0)

        def call():
            gradients = torch.autograd.grad(y, leaves, gy, retain_graph=True)
            return (*gradients, nothing)[:2]

        return call

    return make


PEERS = (
    Peer("torch", "dropout", native, "torch", random=True),
    Peer("torch", "dropout.backward", native_backward, "torch", random=True),
    *(
        Peer(name, f"bias_dropout_add{side}", make(compiled), "torch", random=True)
        for name, compiled in (("torch", False), ("torch.compile", True))
        for side, make in (("", _chain), (".backward", _chain_backward))
    ),
)
