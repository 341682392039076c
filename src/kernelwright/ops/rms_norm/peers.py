"""rms_norm in other libraries. Imported only to time them."""

from __future__ import annotations

import torch

from kernelwright.contract.peer import Peer


def liger(x, weight, eps):
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    # offset of the weight 0; rounds before the weight, as Llama does; never writes into gy
    return lambda: LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)


def liger_backward(gy, x, weight, rstd):
    x = x.detach().requires_grad_()
    weight = None if weight is None else weight.detach().requires_grad_()
    y = liger(x, weight, 1e-6)()
    inputs = [t for t in (x, weight) if t is not None]
    return lambda: torch.autograd.grad(y, inputs, gy, retain_graph=True)


PEERS = (
    Peer("liger", "rms_norm", liger, "liger_kernel"),
    Peer("liger", "rms_norm.backward", liger_backward, "liger_kernel"),
)
