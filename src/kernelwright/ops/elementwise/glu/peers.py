"""Peers of gated linear units: Liger's Triton kernels, with one row per program."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer


def _function(approximate):
    if approximate is None:
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        return LigerSiLUMulFunction
    if approximate == "none":
        raise NotImplementedError("Liger's geglu has the tanh approximation only")
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return LigerGELUMulFunction


def _forward(gate, up, approximate=None):
    function = _function(approximate)
    return lambda: function.apply(gate, up)


def _backward(gy, gate, up, approximate=None):
    # It writes the gradients over gate and up. These are copies; calls after the first read
    # gradients instead of activations, which takes the same time.
    gate, up = (t.detach().clone().requires_grad_() for t in (gate, up))
    y = _function(approximate).apply(gate, up)
    return lambda: torch.autograd.grad(y, (gate, up), gy, retain_graph=True)


PEERS = tuple(
    Peer("liger", f"{name}{suffix}", make, "liger_kernel")
    for name in ("swiglu", "geglu")
    for suffix, make in (("", _forward), (".backward", _backward))
)
