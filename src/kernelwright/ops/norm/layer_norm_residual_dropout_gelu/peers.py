"""Peers of the chain: PyTorch's operators one after another, and fused by torch.compile."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from kernelwright.contract.peer import Peer


def chain(x, residual, weight, bias, p, eps, approximate):
    normal = F.layer_norm(x, x.shape[-1:], weight, bias, eps)
    return F.gelu(F.dropout(normal + residual, p), approximate=approximate)


def _chain(compiled):
    return torch.compile(chain, dynamic=False) if compiled else chain


def _statistics(x, eps):
    wide = x.float()
    return wide.mean(-1, keepdim=True), torch.rsqrt(wide.var(-1, keepdim=True) + eps)


def _forward(compiled):
    def make(x, residual, weight, bias, seed, p, eps, approximate):
        fn, statistics = _chain(compiled), _statistics(x, eps)
        p = 0.0 if seed is None else p

        def call():
            with torch.no_grad():
                return fn(x, residual, weight, bias, p, eps, approximate), *statistics

        return call

    return make


def _backward(compiled):
    def make(gy, x, residual, weight, bias, mean, rstd, seed, p, approximate):
        given = [t if t is None else t.detach().requires_grad_()
                 for t in (x, residual, weight, bias)]  # fmt: skip
        y = _chain(compiled)(*given, 0.0 if seed is None else p, 1e-5, approximate)
        leaves = [t for t in given if t is not None]
        nothing = x.new_empty(0)

        def call():
            gradients = iter(torch.autograd.grad(y, leaves, gy, retain_graph=True))
            return tuple(nothing if t is None else next(gradients) for t in given)

        return call

    return make


PEERS = tuple(
    Peer(name, f"layer_norm_residual_dropout_gelu{side}", make(compiled), "torch", random=True)
    for name, compiled in (("torch", False), ("torch.compile", True))
    for side, make in (("", _forward), (".backward", _backward))
)
