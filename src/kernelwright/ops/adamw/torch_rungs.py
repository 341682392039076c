"""adamw in PyTorch: the formula parameter by parameter, and PyTorch's own fused operator."""

import torch
from torch.optim.adam import adam

from kernelwright.contract import is_dense


@torch.no_grad()
def manual(
    params, grads, exp_avgs, exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, maximize
):
    """Some fifteen kernels a parameter, each over all of it."""
    for p, g, m, v, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        g = -g if maximize else g
        step += 1
        t = step.double()
        wide = torch.promote_types(p.dtype, torch.float32)
        mw = m.to(wide).lerp(g.to(wide), 1 - beta1)
        vw = v.to(wide).lerp(g.to(wide).square(), 1 - beta2)
        denominator = vw.sqrt() / (1 - beta2**t).sqrt().to(wide) + eps
        pw = p.to(wide) * (1 - lr * weight_decay)
        p.copy_(pw - (lr / (1 - beta1**t)).to(wide) * mw / denominator)
        m.copy_(mw)
        v.copy_(vw)


def native(
    params, grads, exp_avgs, exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, maximize
):
    """torch.optim.AdamW's step, fused (one kernel over many parameters) where PyTorch may: its
    fused CPU kernel takes every tensor as dense and writes into the gaps of one that is not."""
    strides = [p.stride() for p in params]
    fused = all(p.is_contiguous() or is_dense(p.shape, p.stride()) for p in params) and all(
        [t.stride() for t in tensors] == strides for tensors in (grads, exp_avgs, exp_avg_sqs)
    )
    adam(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        [],
        state_steps,
        foreach=False,
        capturable=params[0].is_cuda,
        fused=fused,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=lr,
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        decoupled_weight_decay=True,
    )
