"""adamw in PyTorch: the formula parameter by parameter, and PyTorch's own fused operator."""

import torch
from torch.optim.adam import adam

from kernelwright.contract import is_dense

from .stochastic import round_pair


@torch.no_grad()
def manual(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    copies,
    lr,
    beta1,
    beta2,
    weight_decay,
    eps,
    maximize,
    lr_tensor=None,
    grad_scale=None,
    found_inf=None,
    seed=None,
):
    """Some fifteen kernels per parameter, each over all of it."""
    lr = lr if lr_tensor is None else lr_tensor.double()
    for p, g, m, v, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        g = -g if maximize else g
        step += 1
        t = step.double()
        wide = torch.promote_types(p.dtype, torch.float32)
        mw = m.to(wide).lerp(g.to(wide), 1 - beta1)
        # the weight first, as in PyTorch's steps: a large gradient's square overflows
        vw = beta2 * v.to(wide) + (1 - beta2) * g.to(wide) * g.to(wide)
        denominator = vw.sqrt() / (1 - beta2**t).sqrt().to(wide) + eps
        decay = 1 - lr * weight_decay
        step_size = lr / (1 - beta1**t)
        p.copy_(p.to(wide) * decay - step_size.to(wide) * mw / denominator)
        m.copy_(mw)
        v.copy_(vw)


@torch.no_grad()
def native(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    copies,
    lr,
    beta1,
    beta2,
    weight_decay,
    eps,
    maximize,
    lr_tensor=None,
    grad_scale=None,
    found_inf=None,
    seed=None,
):
    """torch.optim.AdamW's fused step: one kernel for many parameters.

    It assumes without a check that every tensor is dense, with its parameter's strides and dtype
    (the CPU version writes into the gaps of a tensor that is not), and leaves gradients unscaled.
    Tensors that differ are therefore copied before the step and back after it.
    """
    lists = [exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if max_exp_avg_sqs else [])]
    dense = [p if is_dense(p.shape, p.stride()) else p.contiguous() for p in params]
    if seed is not None:  # stochastic rounding needs values that have not been rounded before
        dense = [p.float() for p in dense]
    states = [[_like(t, p) for t, p in zip(ts, dense, strict=True)] for ts in lists]
    fitting = [_like(g, p, copy=grad_scale is not None) for g, p in zip(grads, dense, strict=True)]
    adam(
        dense,
        fitting,
        *states[:2],
        states[2] if max_exp_avg_sqs else [],
        state_steps,
        foreach=False,
        capturable=params[0].is_cuda,
        fused=True,
        grad_scale=grad_scale,
        found_inf=found_inf,
        amsgrad=bool(max_exp_avg_sqs),
        beta1=beta1,
        beta2=beta2,
        lr=lr if lr_tensor is None else lr_tensor,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        decoupled_weight_decay=True,
    )
    if seed is not None:
        pairs = zip(*states[:2], strict=True)
        rounded = [round_pair(m, v, seed, k) for k, (m, v) in enumerate(pairs)]
        states[0], states[1] = ([pair[i] for pair in rounded] for i in range(2))
    for mine, theirs in zip((params, *lists), (dense, *states), strict=True):
        for t, new in zip(mine, theirs, strict=True):
            if t is not new:
                t.copy_(new)
    for c, p in zip(copies, params, strict=False):
        c.copy_(p if found_inf is None else torch.where(found_inf == 0, p, c.to(p.dtype)))


def _like(t: torch.Tensor, p: torch.Tensor, copy: bool = False) -> torch.Tensor:
    """A tensor with the dtype and strides of its parameter."""
    if t.dtype == p.dtype and t.stride() == p.stride():
        return t.clone() if copy else t
    return torch.empty_like(p).copy_(t)
