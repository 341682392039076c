"""Norms of another library: Liger's Triton kernels. Imported only to time them."""

from __future__ import annotations

import torch

from kernelwright.contract.peer import Peer


def layer_norm(x, weight, bias, eps):
    call = _layer_norm(x, weight, bias, eps)

    def with_statistics():
        y = call()
        mean, rstd = y.grad_fn.saved_tensors[-2:]  # the statistics that it saves for its backward
        return y, mean.view(*x.shape[:-1], 1), rstd.view(*x.shape[:-1], 1)

    return with_statistics


def layer_norm_backward(gy, x, weight, bias, mean, rstd):
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y = _layer_norm(*inputs, 1e-5)()  # its backward takes the statistics, whatever eps was
    return lambda: torch.autograd.grad(y, inputs, gy, retain_graph=True)


def rms_norm(x, weight, eps, offset):
    call = _rms_norm(x, weight, eps, offset)

    def with_statistic():
        y = call()
        rstd = y.grad_fn.saved_tensors[-1]
        return y, rstd.view(*x.shape[:-1], 1)

    return with_statistic


def rms_norm_backward(gy, x, weight, rstd, offset):
    x = x.detach().requires_grad_()
    weight = None if weight is None else weight.detach().requires_grad_()
    y = _rms_norm(x, weight, 1e-6, offset)()
    inputs = [t for t in (x, weight) if t is not None]
    return lambda: torch.autograd.grad(y, inputs, gy, retain_graph=True)


def add_rms_norm(x, residual, weight, eps, offset):
    call = _add_rms_norm(x, residual, weight, eps, offset)

    def with_statistic():
        y, h = call()
        rstd = y.grad_fn.saved_tensors[-1]
        return y, h, rstd.view(*x.shape[:-1], 1)

    return with_statistic


def add_rms_norm_backward(gy, gh, h, weight, rstd, offset):
    x, weight = h.detach().requires_grad_(), weight.detach().requires_grad_()
    y, s = _add_rms_norm(x, torch.zeros_like(x), weight, 1e-6, offset)()
    gh = torch.zeros_like(gy) if gh is None else gh
    return lambda: torch.autograd.grad((y, s), (x, weight), (gy, gh), retain_graph=True)


def _layer_norm(x, weight, bias, eps):
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    x = _leaf(x)
    return lambda: LigerLayerNormFunction.apply(x, weight, bias, eps)


def _rms_norm(x, weight, eps, offset):
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    x = _leaf(x)
    # rounds before multiplying by the weight, as Llama does; never writes into gy
    return lambda: LigerRMSNormFunction.apply(x, weight, eps, offset, "llama", False)


def _add_rms_norm(x, residual, weight, eps, offset):
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    x = _leaf(x)
    return lambda: LigerFusedAddRMSNormFunction.apply(
        x, residual, weight, eps, offset, "llama", False
    )


def _leaf(x):
    """x with requires_grad, so that the function saves its statistics."""
    return x if x.requires_grad else x.detach().requires_grad_()


PEERS = (
    Peer("liger", "layer_norm", layer_norm, "liger_kernel"),
    Peer("liger", "layer_norm.backward", layer_norm_backward, "liger_kernel"),
    Peer("liger", "rms_norm", rms_norm, "liger_kernel"),
    Peer("liger", "rms_norm.backward", rms_norm_backward, "liger_kernel"),
    Peer("liger", "add_rms_norm", add_rms_norm, "liger_kernel"),
    Peer("liger", "add_rms_norm.backward", add_rms_norm_backward, "liger_kernel"),
)
