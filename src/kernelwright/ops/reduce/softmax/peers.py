"""Peers of softmax: Liger's Triton kernels. PyTorch's own operator is the rung `native`,
torch.compile is the rung `compiled`."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer


def _liger_forward(x, dim):
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda: LigerSoftmaxFunction.apply(x)


def _liger_backward(gy, y, dim):
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    # the peer's kernel computes its own y, so it gets the logarithm of y, whose softmax is y
    x = y.log().requires_grad_()
    out = LigerSoftmaxFunction.apply(x)
    return lambda: torch.autograd.grad(out, x, gy, retain_graph=True)[0]


PEERS = (
    Peer("liger", "softmax", _liger_forward, "liger_kernel"),
    Peer("liger", "softmax.backward", _liger_backward, "liger_kernel"),
)
