"""adamw: an operator that returns nothing and changes lists of tensors."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung
from kernelwright.dispatch import bind

from . import choose, spec

RUNGS = (
    Rung(
        "manual", "torch", "torch_rungs:manual", "the formula, parameter by parameter", serves=False
    ),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own fused operator"),
    Rung(
        "triton_each",
        "triton",
        "triton_each:plan",
        "the update in registers, one kernel a parameter",
        supports=choose.fits,
        configs=choose.CONFIGS,
    ),
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __name__, choose.order, choose.bucket)
_adamw = bind(LADDER, vmap="loop")


def adamw(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    max_exp_avg_sqs: list[torch.Tensor],
    state_steps: list[torch.Tensor],
    *,
    amsgrad: bool = False,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
    maximize: bool = False,
) -> None:
    """One step of AdamW over lists of tensors, in place, as torch.optim.adamw.adamw.

    Args:
        params: changed. float32, float16 and bfloat16 have GPU rungs.
        grads: the parameters' gradients, of the same shapes.
        exp_avgs, exp_avg_sqs: running means of the gradient and of its square; changed.
        max_exp_avg_sqs: AMSGrad's; must be empty.
        state_steps: float32 tensors of one element on the parameters' device: steps taken so far;
            each grows by one.
        amsgrad: must be False.
        lr, beta1, beta2, weight_decay, eps: numbers, read at each call.
        maximize: climb instead of descend.

    Raises:
        NotImplementedError: AMSGrad is asked for.
        TypeError: lr is a tensor, or a step is not float32.
        ValueError: a list's length or a tensor's shape does not agree with params.
    """
    if amsgrad or max_exp_avg_sqs:
        raise NotImplementedError("amsgrad: AMSGrad is not implemented")
    if isinstance(lr, torch.Tensor):
        raise TypeError("lr: must be a number, is a tensor")
    lists = {"grads": grads, "exp_avgs": exp_avgs, "exp_avg_sqs": exp_avg_sqs}
    for name, tensors in {**lists, "state_steps": state_steps}.items():
        if len(tensors) != len(params):
            raise ValueError(f"{name}: has {len(tensors)} tensors, params has {len(params)}")
    shapes = [p.shape for p in params]
    for name, tensors in lists.items():
        if [t.shape for t in tensors] != shapes:
            _refuse_shapes(name, tensors, shapes)
    for k, step in enumerate(state_steps):
        if step.dtype is not torch.float32 or step.numel() != 1:
            raise TypeError(f"state_steps[{k}]: must be one float32")
    if params:
        _adamw(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            state_steps,
            lr,
            beta1,
            beta2,
            weight_decay,
            eps,
            maximize,
        )


def _refuse_shapes(name, tensors, shapes):
    for k, (t, shape) in enumerate(zip(tensors, shapes, strict=True)):
        if t.shape != shape:
            raise ValueError(f"{name}[{k}]: has shape {tuple(t.shape)}, should be {tuple(shape)}")
