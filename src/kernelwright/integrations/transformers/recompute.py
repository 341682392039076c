"""A gated MLP's last product, which keeps gate and up for its backward but not what they make.

linear(swiglu(gate, up)) keeps three tensors of the MLP's width, as written: gate and up for the
activation's backward and its result for the weight's gradient. The result costs one pass over
gate and up to make again, a small share of the product that needs it, so only the two are kept.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.dispatch import override

_ops = torch.ops.kernelwright


def gated_linear(gate, up, weight, bias, activation: str, *how):
    """linear(activation(gate, up, *how), weight, bias).

    If the dtypes differ, the two operators are called. So they are under torch.compile, which is
    told to recompute the activation: by default it saves the operands of a product.
    """
    device = gate.device.type
    if torch.is_autocast_enabled(device):
        to = torch.get_autocast_dtype(device)
        weight, bias = weight.to(to), None if bias is None else bias.to(to)
    activate = getattr(kw, activation)
    keeps = (
        torch.is_grad_enabled() and weight.requires_grad and gate.dtype == up.dtype == weight.dtype
    )
    if not keeps:
        return F.linear(activate(gate, up, *how), weight, bias)
    if torch.compiler.is_compiling():
        again = {"use_reentrant": False, "preserve_rng_state": False}
        return F.linear(checkpoint(activate, gate, up, *how, **again), weight, bias)
    return _GatedLinear.apply(gate, up, weight, bias, activation, how)


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, weight, bias, activation, how):
        ctx.save_for_backward(gate, up, weight)
        ctx.activation, ctx.how = activation, how
        ctx.rungs = override(activation), override(f"{activation}.backward")
        return F.linear(getattr(kw, activation)(gate, up, *how), weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gy):
        gate, up, weight = ctx.saved_tensors
        forward, backward = ctx.rungs
        ggate = gup = gweight = gbias = None
        if ctx.needs_input_grad[2]:
            run = getattr(_ops, ctx.activation)
            hidden = run(gate, up, *ctx.how, rung=forward)
            gweight = gy.flatten(0, -2).t() @ hidden.flatten(0, -2)
            del hidden
        if ctx.needs_input_grad[3]:
            gbias = gy.flatten(0, -2).sum(0)
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            run = getattr(_ops, f"{ctx.activation}_backward")
            ggate, gup = run(gy @ weight, gate, up, *ctx.how, rung=backward or forward)
        return ggate, gup, gweight, gbias, None, None
