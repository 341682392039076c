"""cross_entropy in PyTorch: the formula line by line, and PyTorch's own operators."""

import torch
import torch.nn.functional as F

from .. import _terms
from .._terms import Form


def manual(x, target, weight, reduction, *form_and_to):
    """Some ten kernels over x."""
    *form, to = form_and_to
    form = Form(*form)
    z = _terms.capped(_wide(x), form)
    of = _terms.tokens(z, target, weight, form)
    max_sum = _terms.max_sum(z)
    loss = _terms.losses(*_terms.log_probabilities(z, max_sum), weight, of, form)
    totals = _terms.totals(z, weight, of, reduction)
    return _terms.reduced(loss, totals[0], reduction).to(to or x.dtype), max_sum, totals


def native(x, target, weight, reduction, *form_and_to):
    """log_softmax in float32, as under autocast: in 16 bits its sum would be too inaccurate to
    save."""
    *form, to = form_and_to
    form = Form(*form)
    z = _terms.capped(_wide(x), form)
    logp = torch.log_softmax(z, -1)
    of = _terms.tokens(z, target, weight, form)
    top, least = z.amax(-1), -logp.amax(-1)
    pair = torch.stack((top, least.exp()), -1)
    max_sum = torch.where((least >= 0).unsqueeze(-1), pair, torch.nan)
    plain = F.nll_loss(
        logp.flatten(0, -2) if z.ndim > 1 else logp,
        target.flatten().long() if z.ndim > 1 else target.long(),
        None if weight is None else weight.to(z.dtype),
        ignore_index=form.ignore_index,
        reduction="none",
    )
    loss = (1 - form.label_smoothing) * plain.view(target.shape)
    loss = loss + _terms.beside(logp, top + least, weight, of, form)
    totals = _terms.totals(z, weight, of, reduction)
    return _terms.reduced(loss, totals[0], reduction).to(to or x.dtype), max_sum, totals


def manual_backward(gloss, x, target, weight, max_sum, totals, *form):
    """Another ten kernels."""
    form = Form(*form)
    z = _terms.capped(_wide(x), form)
    of = _terms.tokens(z, target, weight, form)
    logp, lse = _terms.log_probabilities(z, max_sum)
    scale = (gloss.to(z.dtype) / totals[0]).expand(target.shape)
    return _terms.gradient(logp.exp(), z, lse, weight, of, totals[1], scale, form).to(x.dtype)


def native_backward(gloss, x, target, weight, max_sum, totals, *form):
    """PyTorch's backward of log_softmax, for a gradient that is almost all zeros."""
    form = Form(*form)
    z = _terms.capped(_wide(x), form)
    of = _terms.tokens(z, target, weight, form)
    logp, lse = _terms.log_probabilities(z, max_sum)
    scale = (gloss.to(z.dtype) / totals[0]).expand(target.shape)
    glogp = _terms.gradient_of_logp(z, weight, of, form)
    gz = torch._log_softmax_backward_data(glogp, logp, -1, z.dtype)
    gz = gz + (2 * form.z_loss * of.weight * lse).unsqueeze(-1) * logp.exp()
    return _terms.through_cap(gz, z, of, scale, form).to(x.dtype)


def max_and_sum(x, softcap, cap, **others):
    """The tensors that the backward takes from the forward, as functions of the logits, by name."""
    z = _wide(x)
    z = softcap * torch.tanh(z / softcap) if cap else z
    return {"max_sum": _terms.max_sum(z)}


def manual_with_grad(x, target, weight, reduction, *form_and_to):
    """`manual` and its backward, one after another."""
    return _with_grad(manual, manual_backward, x, target, weight, reduction, *form_and_to)


def native_with_grad(x, target, weight, reduction, *form_and_to):
    return _with_grad(native, native_backward, x, target, weight, reduction, *form_and_to)


def _with_grad(forward, backward, x, target, weight, reduction, *form_and_to):
    *form, to = form_and_to
    loss, max_sum, totals = forward(x, target, weight, reduction, *form, to)
    return loss, backward(totals.new_ones(()), x, target, weight, max_sum, totals, *form)


def manual_with_grad_(x, target, weight, g, *form):
    return _in_place(manual, manual_backward, x, target, weight, g, *form)


def native_with_grad_(x, target, weight, g, *form):
    return _in_place(native, native_backward, x, target, weight, g, *form)


def _in_place(forward, backward, x, target, weight, g, *form):
    wide = torch.promote_types(x.dtype, torch.float32)
    loss, max_sum, totals = forward(x, target, weight, "none", *form, wide)
    x.copy_(backward(g, x, target, weight, max_sum, totals, *form))
    return loss


def _wide(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))
