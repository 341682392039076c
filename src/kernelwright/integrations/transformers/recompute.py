"""An MLP's last product, which saves the inputs of the activation for its backward, not its result.

Written as linear(swiglu(gate, up)), three tensors of the MLP's width are saved: gate and up for the
activation's backward, and its result for the weight's gradient. Recomputing the result takes one
pass over gate and up, a small share of the product that needs it, so only these two are saved. For
an activation of one tensor, only that tensor is saved.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.dispatch import override

_ops = torch.ops.kernelwright


def activated_linear(inputs, weight, bias, activation: str, *how):
    """linear(activation(*inputs, *how), weight, bias).

    Args:
        inputs: one tensor, or gate and up.
        activation: its name in kw.

    If the dtypes differ, the two operators are called, and also under torch.func: their derivatives
    of any order and under vmap are right. They are also called under torch.compile, with
    checkpoint() around the activation: by default torch.compile saves a product's operands.
    """
    device = weight.device.type
    if torch.is_autocast_enabled(device):
        to = torch.get_autocast_dtype(device)
        weight, bias = weight.to(to), None if bias is None else bias.to(to)
    activate = getattr(kw, activation)
    keeps = (
        torch.is_grad_enabled()
        and not torch._C._are_functorch_transforms_active()
        and weight.requires_grad
        and all(t.dtype == weight.dtype for t in inputs)
    )
    if not keeps:
        return F.linear(activate(*inputs, *how), weight, bias)
    if torch.compiler.is_compiling():
        again = {"use_reentrant": False, "preserve_rng_state": False}
        return F.linear(checkpoint(activate, *inputs, *how, **again), weight, bias)
    return _ActivatedLinear.apply(activation, how, weight, bias, *inputs)


class _ActivatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, activation, how, weight, bias, *inputs):
        ctx.save_for_backward(weight, *inputs)
        ctx.activation, ctx.how = activation, how
        ctx.rungs = override(activation), override(f"{activation}.backward")
        return F.linear(getattr(kw, activation)(*inputs, *how), weight, bias)

    @staticmethod
    def backward(ctx, gy):
        weight, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradients are differentiated again
            return None, None, *_differentiable(ctx, gy, weight, inputs)
        forward, backward = ctx.rungs
        _, _, of_weight, of_bias, *of_inputs = ctx.needs_input_grad
        gweight = gbias = None
        ginputs = [None] * len(inputs)
        if of_weight:
            run = getattr(_ops, ctx.activation)
            hidden = run(*inputs, *ctx.how, rung=forward)
            gweight = gy.flatten(0, -2).t() @ hidden.flatten(0, -2)
            del hidden
        if of_bias:
            gbias = gy.flatten(0, -2).sum(0)
        if any(of_inputs):
            run = getattr(_ops, f"{ctx.activation}_backward")
            found = run(gy @ weight, *inputs, *ctx.how, rung=backward or forward)
            ginputs = found if len(inputs) > 1 else [found]
        return None, None, gweight, gbias, *ginputs


def _differentiable(ctx, gy, weight, inputs):
    """The gradients of weight, bias and inputs, by operators that can be differentiated again."""
    _, _, of_weight, of_bias, *of_inputs = ctx.needs_input_grad
    hidden = getattr(kw, ctx.activation)(*inputs, *ctx.how)
    gweight = gy.flatten(0, -2).t() @ hidden.flatten(0, -2) if of_weight else None
    gbias = gy.flatten(0, -2).sum(0) if of_bias else None
    ginputs: list[torch.Tensor | None] = [None] * len(inputs)
    if any(of_inputs):
        some = [t for t, want in zip(inputs, of_inputs, strict=True) if want]
        found = iter(torch.autograd.grad(hidden, some, gy @ weight, create_graph=True))
        ginputs = [next(found) if want else None for want in of_inputs]
    return gweight, gbias, *ginputs
