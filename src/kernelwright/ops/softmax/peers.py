"""softmax elsewhere: Liger's Triton kernels, and torch.compile of PyTorch's operator. PyTorch's
own eager operator is the rung `native`."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer
from kernelwright.toolchain import inductor

from .torch_rungs import native, native_backward


def _liger_forward(x, dim):
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda: LigerSoftmaxFunction.apply(x)


def _liger_backward(gy, y, dim):
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    # its kernel needs its own y; the logarithm of this one has the same softmax
    x = y.log().requires_grad_()
    out = LigerSoftmaxFunction.apply(x)
    return lambda: torch.autograd.grad(out, x, gy, retain_graph=True)[0]


def _compiled_forward(x, dim):
    call = inductor.bind(native, x.device)
    return lambda: call(x, dim)


def _compiled_backward(gy, y, dim):
    call = inductor.bind(native_backward, y.device)
    return lambda: call(gy, y, dim)


PEERS = (
    Peer("liger", "softmax", _liger_forward, "liger_kernel"),
    Peer("compile", "softmax", _compiled_forward, "torch"),
    Peer("liger", "softmax.backward", _liger_backward, "liger_kernel"),
    Peer("compile", "softmax.backward", _compiled_backward, "torch"),
)
