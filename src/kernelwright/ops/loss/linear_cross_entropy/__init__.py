"""linear_cross_entropy: the last linear layer and its loss, without storing all logits."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, TensorSpec, arguments, autocast, rungs
from kernelwright.dispatch import (
    Rule,
    bind,
    compose,
    differentiated_again,
    entry_of,
    once,
    operator,
)

from .. import _options
from ..cross_entropy import cross_entropy
from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(
        manual="the formula over all logits",
        native="PyTorch's linear and loss over all logits",
        compiled="the formula, compiled by torch.compile",
    ),
    Rung(
        "chunked",
        "torch",
        "chunked:run",
        "one chunk of tokens after another; gradients computed with the loss",
    ),
)
SCALE_RUNGS = (
    Rung("native", "torch", "torch_rungs:scale", "PyTorch's mul_, whatever the factor is"),
    rungs.triton(
        "unless_one",
        "",
        "returns immediately if the factor is 1",
        heuristics.fits_scale,
        heuristics.SCALE_CONFIGS,
    ),
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __name__, heuristics.order, heuristics.bucket, "peers:PEERS")
LADDER_SCALE = Ladder(
    spec.SCALE, SCALE_RUNGS, __name__, heuristics.order_scale, heuristics.bucket_scale
)
_losses = bind(LADDER, vmap="loop")
scale_unless_one_ = bind(LADDER_SCALE, vmap="loop")


def linear_cross_entropy(
    input: torch.Tensor,
    linear_weight: torch.Tensor,
    target: torch.Tensor,
    *,
    linear_bias: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target) by chunks of tokens.

    As torch.nn.functional.linear_cross_entropy (PyTorch 2.13), for any leading shape. If a gradient
    is required and the loss is one number, all gradients are computed with the loss, and the
    backward multiplies them by the gradient of the loss only if that is not 1. With reduction
    "none", and in float16, whose range is too small for gradients that a GradScaler has not scaled
    yet, the backward computes the logits again.

    Forward mode, nested transforms of torch.func, and transforms of tensors that also require a
    gradient outside of them, differentiate the formula over all logits. Double backward without
    torch.func raises NotImplementedError, because the values that it needs are not saved.

    Args:
        input: shape (*, H).
        linear_weight: shape (C, H), of the input's dtype; or (C, d1, ..., H) for a loss of further
            dimensions, which computes all logits, as PyTorch does.
        target: class indices, shape (*); with (C, d1, ..., H) of shape (N, d1, ...). Class
            probabilities, of the shape of `cross_entropy`'s logits, compute all logits too.
        linear_bias: shape (C,), or (C, d1, ...).
        weight, reduction, label_smoothing, z_loss, softcap: as in `cross_entropy`.
        ignore_index: None means -100.
        dtype: of the loss; the input's, or float32 under autocast. It is computed in float32 or
            wider.

    Returns:
        The loss: one number, or one for each target if reduction is "none". Under autocast the
        product runs in its dtype, as PyTorch's linear does.

    Raises:
        TypeError: as in `cross_entropy`, or an argument has another dtype than the input.
        ValueError: as in `cross_entropy`, or shapes do not agree.
    """
    arguments.floating("input", input)
    _options.not_jagged(input)
    arguments.tensor("linear_weight", linear_weight)
    to = autocast.active(input)
    if to is not None and input.dtype != torch.float64:
        input, linear_weight = input.to(to), linear_weight.to(to)
        linear_bias = None if linear_bias is None else linear_bias.to(to)
    _check(input, linear_weight, linear_bias)
    arguments.tensor("target", target)
    again = differentiated_again(input, linear_weight, linear_bias)
    if linear_weight.ndim > 2 or target.is_floating_point() or again:
        if linear_weight.ndim > 2 and input.ndim != 2:
            raise ValueError(
                f"input: must be (N, H) beside a linear_weight of {linear_weight.ndim} dimensions, "
                f"has {input.ndim}"
            )
        return cross_entropy(
            _all_logits(input, linear_weight, linear_bias),
            target,
            weight,
            ignore_index=-100 if ignore_index is None else ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            softcap=softcap,
            dtype=dtype,
        )
    leading = input.shape[:-1]
    logits = (*leading, linear_weight.shape[0])
    target, weight = _options.classes(logits, input.dtype, target, weight, reduction)
    ignored = -100 if ignore_index is None else ignore_index
    form = _options.form(ignored, label_smoothing, z_loss, softcap)
    x, target = input.reshape(-1, input.shape[-1]), target.view(-1)
    g = _factor(x, target, weight, reduction, ignored)
    wants = tuple(
        torch.is_grad_enabled() and t is not None and t.requires_grad
        for t in (x, linear_weight, linear_bias)
    )
    # gradients that are computed with the loss; the backward computes the others
    now = wants if reduction != "none" and x.dtype != torch.float16 else (False,) * 3
    loss = _with_gradients(
        x, linear_weight, linear_bias, target, weight, g, reduction, *now, *form
    )[0]
    if dtype is None:
        dtype = torch.promote_types(x.dtype, torch.float32) if to is not None else x.dtype
    if any(now):  # the backward keeps the loss, and a user may change the result in place
        return loss.to(dtype, copy=True)
    return loss.view(leading if reduction == "none" else ()).to(dtype)


def _check(input, linear_weight, linear_bias):
    if not input.ndim:
        raise ValueError("input: must have a dimension of features")
    if linear_weight.ndim < 2 or linear_weight.shape[-1] != input.shape[-1]:
        raise ValueError(
            f"linear_weight: has shape {tuple(linear_weight.shape)}, "
            f"should be (C, {input.shape[-1]})"
        )
    shape = linear_weight.shape[:-1]
    if linear_bias is not None and linear_bias.shape != shape:
        raise ValueError(
            f"linear_bias: has shape {tuple(linear_bias.shape)}, should be {tuple(shape)}"
        )
    for name, t in (("linear_weight", linear_weight), ("linear_bias", linear_bias)):
        if t is not None and t.dtype != input.dtype:
            raise TypeError(f"{name}: is {t.dtype}, should be {input.dtype} as the input")


def _all_logits(input, linear_weight, linear_bias):
    """The logits in the form that `cross_entropy` takes: (C,), (N, C), or (N, C, d1, ...)."""
    rows = linear_weight.shape[:-1]
    bias = None if linear_bias is None else linear_bias.flatten()
    logits = torch.nn.functional.linear(input, linear_weight.flatten(0, -2), bias)
    if len(rows) > 1:
        return logits.view(*input.shape[:-1], *rows)
    return logits.movedim(-1, 1) if logits.ndim > 2 else logits


def _factor(x, target, weight, reduction, ignore_index):
    """The factor of each token's loss in the result; NaN for a mean over no tokens."""
    wide = torch.promote_types(x.dtype, torch.float32)
    if reduction != "mean":
        return torch.ones((), dtype=wide, device=x.device)
    counts = target != ignore_index
    if weight is None:
        return counts.sum(dtype=wide).reciprocal()
    of_target = weight[torch.where(counts, target, 0).long()]
    return torch.where(counts, of_target, 0.0).sum().reciprocal()


def _loss(x, w, bias, target, weight, g, reduction, of_x, of_w, of_bias, *rest):
    *form, rung = rest
    given = x, w, bias, target, weight, g, of_x, of_w, of_bias, *form
    losses, *gradients = _losses(*given, rung)
    return _reduced(losses, g, reduction), *gradients


def _formula(x, w, bias, target, weight, g, reduction, of_x, of_w, of_bias, *form):
    manual = entry_of(LADDER, LADDER.rung("manual"))
    losses, *none = manual(x, w, bias, target, weight, g, False, False, False, *form)
    return _reduced(losses, g, reduction), *none


def _reduced(losses, g, reduction):
    if reduction == "none":
        return losses
    # no tokens: 0 times the factor, which is infinite for a mean
    return (losses * g).sum() if losses.numel() else losses.sum() * g


def _specs(reduction, **named):
    losses, *gradients = spec.outputs(**named)
    loss = losses if reduction == "none" else TensorSpec.contiguous((), losses.dtype)
    return loss, *gradients


def _save(ctx, inputs, output):
    *tensors, _, of_x, of_w, of_bias = inputs[:10]
    loss, *gradients = output
    ctx.now, ctx.form = of_x or of_w or of_bias, inputs[10:]
    ctx.mark_non_differentiable(*gradients)
    ctx.set_materialize_grads(False)  # else the backward gets zeros of these gradients' size
    # `once` needs a tensor that depends on what requires a gradient: the loss, or an input
    ctx.save_for_backward(*((loss, *gradients) if ctx.now else tensors))


@once("linear_cross_entropy: double backward is not supported; use kw.linear and kw.cross_entropy")
def _backward(ctx, gloss, *_):
    wanted = ctx.needs_input_grad[:3]
    rest = (None,) * (7 + len(ctx.form))
    if gloss is None:
        return None, None, None, *rest
    if ctx.now:
        gradients = [
            _scaled(t, gloss) if want else None
            for t, want in zip(ctx.saved_tensors[1:], wanted, strict=True)
        ]
    else:
        *tensors, g = ctx.saved_tensors
        results = _losses(*tensors, (g * gloss).to(g.dtype), *wanted, *ctx.form)
        gradients = [t if want else None for t, want in zip(results[1:], wanted, strict=True)]
    return *gradients, *rest


#: (loss, the gradients of x, w and bias that `of_x`, `of_w`, `of_bias` request).
_with_gradients = compose(
    operator(
        "linear_cross_entropy.loss",
        spec.OPERATOR.schema.replace("bool of_x", "str reduction, bool of_x"),
        _specs,
    ),
    _loss,
    Rule(_save, _backward),
    _formula,
    of=LADDER.name,
)


def _scaled(t, g):
    """t times g. In place if only this backward holds the memory. Not in place if the graph is
    retained and may run again; under a compiler, which allocates results itself; under torch.func,
    which does not allow mutation; and for DTensors, which have no rule for it."""
    watched = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    watched = watched or type(t) is not torch.Tensor
    if watched or torch._C._autograd._get_current_graph_task_keep_graph():
        return t * g.to(t.dtype)
    scale_unless_one_(t, g)
    return t
