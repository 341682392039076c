"""The head that TRL's trainers put in front of a model, on our operators.

SFTTrainer replaces a model's forward by one that computes, on request, each token's log-probability
from the states, and entropy and accuracy for its log; the model's loss is not called. That forward
is not replaced; only the function with which it computes these values is.
"""

from __future__ import annotations

import math
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional as F

import kernelwright as kw
import kernelwright.ops.loss.linear_cross_entropy
from kernelwright.dispatch import override

WORKSPACE = 64 << 20  # bytes of logits at a time
_NAME = "_ChunkedLogProbFunction"


def is_head(forward: Any) -> bool:
    """Whether this is the forward that TRL puts in front of a model's."""
    function = getattr(forward, "__func__", None)
    return (
        isinstance(function, FunctionType)
        # __module__ is that of the wrapped forward
        and function.__globals__.get("__name__") == "trl.trainer.utils"
        and _NAME in function.__code__.co_names
    )


@cache
def head(function: FunctionType) -> FunctionType:
    """A function with the same code that calls our function."""
    names = function.__globals__ | {_NAME: _Scores(function.__globals__[_NAME])}
    names.pop("__name__")  # torch.compile would look names up in the module of that name
    new = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.before = function  # restored by `unpatch`
    new.__wrapped__ = function.__wrapped__  # generate() and Trainer read its signature
    return new


class _Scores:
    """A replacement of TRL's function with the same arguments and results."""

    def __init__(self, theirs: Any):
        self.theirs = theirs

    def apply(
        self, hidden, weight, bias, targets, temperature, chunk_size, cap=None, scale=1.0,
        outputs=("entropy", "log_sum_sq_probs", "mean_logits", "is_top1"),
    ):  # fmt: skip
        """(log-probabilities, entropy, log(sum of squared probabilities), mean logit, whether the
        target has the largest logit), each (N,) or None.

        Args:
            hidden: (N, H).
            weight, bias: the head's, (V, H) and (V,).
            targets: (N,).
        """
        if {"log_sum_sq_probs", "mean_logits"} & set(outputs):
            return self.theirs.apply(
                hidden, weight, bias, targets, temperature, chunk_size, cap, scale, outputs
            )
        device = hidden.device.type
        if torch.is_autocast_enabled(device):
            to = torch.get_autocast_dtype(device)
            hidden, weight = hidden.to(to), weight.to(to)
            bias = None if bias is None else bias.to(to)
        # cap tanh(scale z / cap) / temperature is the same with cap / temperature for cap
        factor = scale / temperature
        cap = cap and cap / temperature
        if not math.isclose(factor, 1.0):
            hidden, bias = hidden * factor, None if bias is None else bias * factor
        wants = "entropy" in outputs, "is_top1" in outputs
        run = _TokenScores.apply
        if torch._C._are_functorch_transforms_active():  # derivatives of any order, and vmap
            run = _of_all_logits
        scores, entropy, top = run(hidden, weight, bias, targets, cap, *wants)
        return scores, entropy, None, None, top


class _TokenScores(torch.autograd.Function):
    """Computes the logits of some tokens at a time, and again in the backward for the gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias, target, cap, of_entropy, of_top):
        rows = max(1, WORKSPACE // (weight.shape[0] * x.itemsize))
        chunks = [
            _scores(F.linear(some, weight, bias), t, cap, of_entropy, of_top)
            for some, t in zip(x.split(rows), target.split(rows), strict=True)
        ]
        scores, entropy, top = (
            None if some[0] is None else torch.cat(some) for some in zip(*chunks, strict=True)
        )
        ctx.save_for_backward(x, weight, bias, target)
        ctx.cap, ctx.rows, ctx.rung = cap, rows, override("linear_cross_entropy")
        ctx.set_materialize_grads(False)
        if top is not None:
            ctx.mark_non_differentiable(top)
        return scores, entropy, top

    @staticmethod
    def backward(ctx, gscores, gentropy, _):
        x, weight, bias, target = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # the gradients are differentiated again
            return *_differentiable(ctx, gscores, gentropy), None, None, None, None
        if gentropy is not None:
            return *_of_all(ctx, gscores, gentropy), None, None, None, None
        if gscores is None:
            return (None,) * 7
        run = torch.ops.kernelwright.linear_cross_entropy
        cap = ctx.cap or 0.0
        g = -gscores.to(torch.promote_types(x.dtype, torch.float32))
        _, *gradients_of_all = run(
            x, weight, bias, target, None, g, *wanted, -100, 0.0, 0.0, cap, False, bool(cap),
            rung=ctx.rung,
        )  # fmt: skip
        gradients = (t if want else None for t, want in zip(gradients_of_all, wanted, strict=True))
        return *gradients, None, None, None, None


def _of_all_logits(x, weight, bias, target, cap, of_entropy, of_top):
    return _scores(F.linear(x, weight, bias), target, cap, of_entropy, of_top)


def _differentiable(ctx, gscores, gentropy):
    """The gradients of x, weight and bias, by operators that can be differentiated again."""
    *given, target = ctx.saved_tensors
    scores, entropy, _ = _of_all_logits(*given, target, ctx.cap, gentropy is not None, False)
    results = [(y, g) for y, g in ((scores, gscores), (entropy, gentropy)) if g is not None]
    of = [t for t, want in zip(given, ctx.needs_input_grad, strict=False) if want]
    if not results:
        return (None,) * 3
    of_scores, incoming = zip(*results, strict=True)
    gradients = iter(torch.autograd.grad(of_scores, of, incoming, create_graph=True))
    return tuple(next(gradients) if want else None for want in ctx.needs_input_grad[:3])


def _scores(logits, target, cap, of_entropy, of_top):
    top = logits.argmax(-1) == target if of_top else None
    if not of_entropy:
        return -_loss(logits, target, cap), None, top
    logp = _log_probabilities(logits, cap)
    entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(-1, target[:, None])[:, 0], entropy, top


def _loss(logits, target, cap):
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return kw.cross_entropy(logits, target, reduction="none", softcap=cap, dtype=dtype)


def _log_probabilities(logits, cap):
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(z if cap is None else cap * torch.tanh(z / cap), -1)


def _of_all(ctx, gscores, gentropy):
    """The gradients if the entropy has one as well: by autograd, for some tokens at a time."""
    x, weight, bias, target = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:3]
    sums = [
        torch.zeros_like(t) if want else None
        for t, want in zip((x, weight, bias), wanted, strict=True)
    ]
    for first in range(0, x.shape[0], ctx.rows):
        here = slice(first, first + ctx.rows)
        with torch.enable_grad():
            given = [
                t if t is None else t.detach().requires_grad_() for t in (x[here], weight, bias)
            ]
            logp = _log_probabilities(F.linear(*given), ctx.cap)
            total = -((logp.exp() * logp).sum(-1) * gentropy[here]).sum()
            if gscores is not None:
                total = total + (logp.gather(-1, target[here, None])[:, 0] * gscores[here]).sum()
        gradients = torch.autograd.grad(total, [t for t in given if t is not None])
        for i, g in zip((i for i, t in enumerate(given) if t is not None), gradients, strict=True):
            if sums[i] is not None:
                (sums[0][here] if i == 0 else sums[i]).add_(g)
    return sums
