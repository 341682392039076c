"""The formula of the loss per token, shared by references, noise and PyTorch rungs.

z = x, or c tanh(x / c) with softcap c;  lse = log sum_j exp z_j;  p = exp(z - lse)
loss_i = (1 - s) w_t (lse - z_t) + s / C sum_j w_j (lse - z_j) + q w_t lse^2
with target t, class weights w (1 if there are none), label smoothing s over C classes and the
factor q of the z-loss. The loss and gradient of an ignored token are 0, whatever its logits are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import is_fake


class Form(NamedTuple):
    """The terms that a call adds to plain cross entropy; `smooth` and `cap` say which are
    present."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    smooth: bool
    cap: bool


class Tokens(NamedTuple):
    """Values from the targets: `hit` is a valid class also for ignored tokens, whose `weight` is
    0."""

    ignored: torch.Tensor
    hit: torch.Tensor
    weight: torch.Tensor


PIECE = 2**26  # maximum number of logits for which float64 intermediates are kept


def pieces(x, *of_tokens):
    """Rows of x, some at a time, each with the other values of its tokens."""
    rows = x.reshape(-1, x.shape[-1])
    step = max(1, PIECE // x.shape[-1])
    return zip(*(t.split(step) for t in (rows, *(t.reshape(-1) for t in of_tokens))), strict=True)


def capped(x, form: Form):
    return form.softcap * torch.tanh(x / form.softcap) if form.cap else x


def tokens(x, target, weight, form: Form) -> Tokens:
    """Raises IndexError on a CPU if a target is out of range. On a GPU, and compiled, the following
    gather asserts this; a fake or meta target has no values to check."""
    ignored = target == form.ignore_index
    hit = torch.where(ignored, 0, target).long()
    if not (x.is_cuda or torch.compiler.is_compiling() or is_fake(hit) or hit.is_meta):
        wrong = hit[(hit < 0) | (hit >= x.shape[-1])]
        if wrong.numel():
            raise IndexError(f"target: {wrong[0].item()} is out of range for {x.shape[-1]} classes")
    of_hit = x.new_ones(hit.shape) if weight is None else weight.to(x.dtype)[hit]
    return Tokens(ignored, hit, of_hit.masked_fill(ignored, 0.0))


def max_sum(z):
    """(max z, sum of exp(z - max)) of each row, in a last dimension of 2: lse = max + log(sum).
    They are saved apart, because in their sum a large max absorbs the log. NaN for rows that have
    no probabilities: those with a NaN or an infinity, or of nothing but -inf."""
    top = z.amax(-1)
    total = torch.exp(z - top.unsqueeze(-1)).sum(-1)
    return torch.where((total > 0).unsqueeze(-1), torch.stack((top, total), -1), torch.nan)


def log_probabilities(z, of_rows):
    """(log p, lse) from z and its `max_sum`; z - max is exact where terms of a large common size
    cancel."""
    top, log_total = of_rows[..., 0], of_rows[..., 1].log()
    return (z - top.unsqueeze(-1)) - log_total.unsqueeze(-1), top + log_total


def losses(logp, lse, weight, of: Tokens, form: Form):
    """The loss of each token from log p."""
    hit = logp.gather(-1, of.hit.unsqueeze(-1)).squeeze(-1)
    plain = (-(1 - form.label_smoothing) * of.weight * hit).masked_fill(of.ignored, 0.0)
    return plain + beside(logp, lse, weight, of, form)


def beside(logp, lse, weight, of: Tokens, form: Form):
    """The terms that label smoothing and the z-loss add to the loss of each token."""
    loss = form.z_loss * of.weight * lse.square()
    if form.smooth:
        every = logp if weight is None else logp * weight.to(logp.dtype)
        loss = loss - form.label_smoothing / logp.shape[-1] * every.sum(-1)
    return loss.masked_fill(of.ignored, 0.0)


def reduced(loss, divisor, reduction: str):
    return loss if reduction == "none" else loss.sum() / divisor


def totals(x, weight, of: Tokens, reduction: str):
    """(the divisor of a summed loss, the sum of all class weights)."""
    divisor = of.weight.sum() if reduction == "mean" else x.new_ones(())
    return torch.stack((divisor, every_weight(x, x.shape[-1], weight)))


def every_weight(x, classes: int, weight):
    """The sum of all class weights."""
    return x.new_full((), classes) if weight is None else weight.to(x.dtype).sum()


def gradient(p, z, lse, weight, of: Tokens, every, scale, form: Form):
    """d loss_i / d x, times `scale`; `every` is the sum of all class weights."""
    of_p = ((1 - form.label_smoothing) + 2 * form.z_loss * lse) * of.weight
    if form.smooth:
        of_p = of_p + form.label_smoothing / z.shape[-1] * every
    gz = of_p.unsqueeze(-1) * p + gradient_of_logp(z, weight, of, form)
    return through_cap(gz, z, of, scale, form)


def gradient_of_logp(z, weight, of: Tokens, form: Form):
    """d loss_i / d log p: -1 at the target, plus the terms of label smoothing."""
    spread = form.label_smoothing / z.shape[-1] if form.smooth else 0.0
    every = 1 if weight is None else weight.to(z.dtype)
    g = torch.zeros_like(z) - spread * every
    plain = (1 - form.label_smoothing) * of.weight
    return g.scatter_add(-1, of.hit.unsqueeze(-1), -plain.unsqueeze(-1))


def through_cap(gz, z, of: Tokens, scale, form: Form):
    """The gradient with respect to x from that with respect to z, times each token's scale; 0 for
    ignored tokens."""
    if form.cap:
        gz = gz * (1 - (z / form.softcap).square())
    return (gz * scale.unsqueeze(-1)).masked_fill(of.ignored.unsqueeze(-1), 0.0)
