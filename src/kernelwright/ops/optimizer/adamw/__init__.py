"""adamw: one step of AdamW over lists of tensors, in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, Rung, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(
        manual="the formula, parameter by parameter",
        native="PyTorch's own fused operator",
        compiled=None,
        supports=heuristics.plain,
    ),
    rungs.triton(
        "each",
        "",
        "the update in registers, one kernel per parameter",
        heuristics.fits_each,
        heuristics.EACH,
        dispatchable=False,
    ),
    rungs.triton(
        "list",
        "",
        "one launch; each program looks up its part of a parameter",
        heuristics.fits,
        heuristics.TRITON,
    ),
    Rung(
        "cuda_list",
        "cuda",
        "cuda:list_plan",
        "the same with 16-byte vectors; a parameter's factors computed once per block",
        supports=heuristics.fits,
        configs=heuristics.CUDA,
        sources=("cuda_list.cu",),
    ),
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __name__, heuristics.order, heuristics.bucket)
#: The operator itself, which checks nothing, for callers that have created the lists themselves.
step = bind(LADDER, vmap="loop")


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
    lr: float | torch.Tensor,
    weight_decay: float,
    eps: float,
    maximize: bool = False,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
    copies: Sequence[torch.Tensor] = (),
    seed: torch.Tensor | None = None,
) -> None:
    """One step of AdamW over lists of tensors, in place, as torch.optim.adamw.adamw.

    Args:
        params: changed. float32, float16 and bfloat16 have GPU rungs.
        grads: the parameters' gradients, of the same shapes; not changed.
        exp_avgs, exp_avg_sqs: running means of the gradient and of its square; changed.
        max_exp_avg_sqs: AMSGrad's largest second moments, changed; empty without AMSGrad.
        state_steps: float32 tensors of one element on the parameters' device: the steps taken so
            far; each is incremented.
        amsgrad: divide by the largest second moment so far.
        lr: a number, read at each call, or a tensor of one element on the parameters' device.
        beta1, beta2, weight_decay, eps: numbers, read at each call.
        maximize: maximize the objective instead of minimizing it.
        grad_scale: one float32: the factor by which the gradients were multiplied.
        found_inf: one float32: if it is not 0, nothing changes.
        copies: tensors of the parameters' shapes and of a narrower dtype, to which each new
            parameter is rounded; `params` are then the master weights.
        seed: one int64 on the parameters' device: the moments are bfloat16 and rounded
            stochastically, without bias. Each step needs a new seed.

    Raises:
        TypeError: a step is not float32; with a seed, moments are not bfloat16.
        ValueError: a list's length or a tensor's shape does not agree with params; amsgrad has no
            max_exp_avg_sqs; a tensor given for a number has several elements.
    """
    if amsgrad != bool(max_exp_avg_sqs) and params:
        raise ValueError(
            f"max_exp_avg_sqs: has {len(max_exp_avg_sqs)} tensors, amsgrad is {amsgrad}"
        )
    lists = {"grads": grads, "exp_avgs": exp_avgs, "exp_avg_sqs": exp_avg_sqs}
    lists |= {"max_exp_avg_sqs": max_exp_avg_sqs} if amsgrad else {}
    lists |= {"copies": copies} if copies else {}
    for name, tensors in {**lists, "state_steps": state_steps}.items():
        if len(tensors) != len(params):
            raise ValueError(f"{name}: has {len(tensors)} tensors, params has {len(params)}")
    shapes = [p.shape for p in params]
    for name, tensors in lists.items():
        if [t.shape for t in tensors] != shapes:
            _refuse_shapes(name, tensors, shapes)
    for k, count in enumerate(state_steps):
        if count.dtype is not torch.float32 or count.numel() != 1:
            raise TypeError(f"state_steps[{k}]: must be one float32")
    numbers = {"lr": lr, "grad_scale": grad_scale, "found_inf": found_inf, "seed": seed}
    for name, number in numbers.items():
        if isinstance(number, torch.Tensor) and number.numel() != 1:
            raise ValueError(f"{name}: must have one element, has {number.numel()}")
    if seed is not None:
        for name in ("exp_avgs", "exp_avg_sqs"):
            for k, t in enumerate(lists[name]):
                if t.dtype is not torch.bfloat16:
                    raise TypeError(f"{name}[{k}]: is {t.dtype}, must be bfloat16 with a seed")
    if params:
        step(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            max_exp_avg_sqs,
            state_steps,
            list(copies),
            0.0 if isinstance(lr, torch.Tensor) else lr,
            beta1,
            beta2,
            weight_decay,
            eps,
            maximize,
            lr if isinstance(lr, torch.Tensor) else None,
            grad_scale,
            found_inf,
            seed,
        )


def _refuse_shapes(name, tensors, shapes):
    for k, (t, shape) in enumerate(zip(tensors, shapes, strict=True)):
        if t.shape != shape:
            raise ValueError(f"{name}[{k}]: has shape {tuple(t.shape)}, should be {tuple(shape)}")
