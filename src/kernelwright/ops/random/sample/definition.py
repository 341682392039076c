"""Sampling from logits in plain PyTorch."""

from __future__ import annotations

import math

import torch

from .._sequences import philox

CHUNK = 2**22  # tokens at a time: a token's words take some hundred bytes on the way


def sample(logits, state, each, temperature, top_k, top_p, min_p, dtype=None):
    """The token of each row; -1 where all are -infinity.

    Args:
        dtype: in which it is computed, by default that of the logits.
    """
    if not logits.numel():
        return torch.full(logits.shape[:-1], -1, device=logits.device)
    flat = logits.reshape(-1, logits.shape[-1])
    step, drawn = max(1, CHUNK // logits.shape[-1]), []
    for first in range(0, len(flat), step):
        x = cleaned(flat[first : first + step].to(dtype or logits.dtype))
        if each is None:
            how = (x.new_full((len(x), 1), v) for v in (temperature, top_k, top_p, min_p))
        else:
            how = each[first : first + step, :, None].to(x.dtype).unbind(1)
        drawn.append(_of_rows(x, state, first, *how))
    return torch.cat(drawn).view(logits.shape[:-1])


def cleaned(logits):
    """NaN counts as -infinity. Beside infinities nothing counts, and they are equal."""
    x = logits.masked_fill(logits.isnan(), -math.inf)
    infinite = x == math.inf
    only = torch.where(infinite, 0.0, -math.inf).to(x.dtype)
    return torch.where(infinite.any(-1, keepdim=True), only, x)


def _of_rows(x, state, first, temperature, top_k, top_p, min_p):
    greedy = ~(temperature > 0)
    below = (x - x.amax(-1, keepdim=True)).nan_to_num(-math.inf, neginf=-math.inf)
    left = filtered(below / torch.where(greedy, 1.0, temperature), top_k, top_p, min_p)
    weight = torch.exp(left - left.amax(-1, keepdim=True))
    race = exponentials(x, state, first) / weight  # infinite where the weight is 0
    token = torch.where(greedy[:, 0], x.argmax(-1), race.argmin(-1))
    return token.masked_fill(x.amax(-1) == -math.inf, -1)


def filtered(x, top_k, top_p, min_p):
    """Scaled logits, -infinity for tokens that are not to be drawn.

    The filters, a number or a column of a number a row each, apply in this order. Equal logits are
    kept or left out together.
    """
    columns = x.shape[-1]
    ordered, order = x.sort(descending=True, stable=True)
    weight = torch.exp(ordered - ordered[:, :1]).nan_to_num(0.0)
    k = torch.as_tensor(top_k, device=x.device).to(x.dtype).expand(len(x), 1)
    p = torch.as_tensor(top_p, device=x.device).to(x.dtype)
    limited = (k >= 1) & (k < columns)
    last = torch.where(limited, k, columns).long() - 1
    kept = ordered >= ordered.gather(-1, last)
    weight = torch.where(kept, weight, 0.0)
    above = _of_first_equal(ordered, weight.cumsum(-1) - weight)
    kept &= (above < p * weight.sum(-1, keepdim=True)) | (p >= 1) | (above == 0)
    kept &= ~(weight < torch.as_tensor(min_p, device=x.device).clamp(max=1))
    return x.masked_fill(~kept.scatter(-1, order, kept), -math.inf)


def _of_first_equal(ordered, values):
    """At each place the value at the first place of an equal element."""
    place = torch.arange(ordered.shape[-1], device=ordered.device).expand(ordered.shape)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return values.gather(-1, torch.where(new, place, 0).cummax(-1).values)


def exponentials(x, state, first):
    """-log(1 - u) of word i % 4 of position i // 4 of each row's sequence."""
    calls = torch.arange(-(-x.shape[-1] // 4), device=x.device)
    rows = torch.arange(first, first + len(x), device=x.device)
    position = (state[1:] >> 2) + calls
    shape = len(rows), len(calls)
    words = philox(state[:1], position.expand(shape), rows[:, None].expand(shape))
    u = words.flatten(1)[:, : x.shape[-1]].float() * 2.0**-32 + 2.0**-33
    return -torch.log1p(-u.to(x.dtype))
