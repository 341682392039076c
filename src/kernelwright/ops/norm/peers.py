"""rms_norm in other libraries. Imported only to time them."""

from __future__ import annotations

import torch

from kernelwright.contract.peer import Peer


def liger(x, weight, eps):
    call = _liger(x, weight, eps)

    def with_statistic():
        y = call()
        rstd = y.grad_fn.saved_tensors[-1]  # what it keeps for its backward
        return y, rstd.view(*x.shape[:-1], 1)

    return with_statistic


def liger_backward(gy, x, weight, rstd):
    x = x.detach().requires_grad_()
    weight = None if weight is None else weight.detach().requires_grad_()
    y = _liger(x, weight, 1e-6)()  # its backward takes the statistic, whatever eps was
    inputs = [t for t in (x, weight) if t is not None]
    return lambda: torch.autograd.grad(y, inputs, gy, retain_graph=True)


def _liger(x, weight, eps):
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    x = x if x.requires_grad else x.detach().requires_grad_()
    # offset of the weight 0; rounds before the weight, as Llama does; never writes into gy
    return lambda: LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)


PEERS = (
    Peer("liger", "rms_norm", liger, "liger_kernel"),
    Peer("liger", "rms_norm.backward", liger_backward, "liger_kernel"),
)
