"""Sampling from logits in plain PyTorch."""

from __future__ import annotations

import math

import torch

from .._sequences import philox

CHUNK = 2**22  # tokens at a time: intermediate results take some hundred bytes per token


def sample(logits, state, each, temperature, top_k, top_p, min_p, dtype=None):
    """The token of each row; -1 if all logits are -infinity.

    Args:
        dtype: of the computation; by default that of the logits.
    """
    if not logits.numel():
        return torch.full(logits.shape[:-1], -1, device=logits.device)
    flat = logits.reshape(-1, logits.shape[-1])
    step, drawn = max(1, CHUNK // logits.shape[-1]), []
    for first in range(0, len(flat), step):
        x = cleaned(flat[first : first + step].to(dtype or logits.dtype))
        how = temperature, top_k, top_p, min_p
        if each is not None:
            how = each[first : first + step, :, None].to(x.dtype).unbind(1)
        drawn.append(_race(x, exponentials(x, state, first), *how))
    return torch.cat(drawn).view(logits.shape[:-1])


def cleaned(logits):
    """NaN counts as -infinity. If there are infinities, only these count, and equally."""
    x = logits.masked_fill(logits.isnan(), -math.inf)
    infinite = x == math.inf
    only = torch.where(infinite, 0.0, -math.inf).to(x.dtype)
    return torch.where(infinite.any(-1, keepdim=True), only, x)


def by_clocks(logits, generator, temperature, top_k, top_p, min_p):
    """The token of each row, with exponential numbers from PyTorch's generator."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    x = cleaned(logits.reshape(-1, logits.shape[-1]).to(wide))
    clocks = torch.empty_like(x).exponential_(generator=generator)
    return _race(x, clocks, temperature, top_k, top_p, min_p).view(logits.shape[:-1])


def _race(x, clocks, temperature, top_k, top_p, min_p):
    """The token with the smallest ratio of clock and weight; parameters are numbers, or one per
    row."""
    most = x.amax(-1, keepdim=True)
    temperature = _column(x, temperature)
    greedy = ~(temperature > 0)
    below = (x - most).nan_to_num(-math.inf, neginf=-math.inf)
    left = filtered(below / torch.where(greedy, 1.0, temperature), top_k, top_p, min_p)
    # infinite if the weight is 0; NaN for rows without tokens
    race = clocks / torch.exp(left - left.amax(-1, keepdim=True))
    token = torch.where(greedy[:, 0], x.argmax(-1), race.argmin(-1))
    return token.masked_fill(most[:, 0] == -math.inf, -1)


def filtered(x, top_k, top_p, min_p):
    """Scaled logits, with -infinity for tokens that must not be drawn.

    The filters, each a number or one number per row, apply in this order. Tokens with equal logits
    are either all kept or all removed.
    """
    columns = x.shape[-1]
    if all(isinstance(v, (int, float)) for v in (top_k, top_p, min_p)):
        all_kept = not 1 <= top_k < columns and top_p >= 1
        if all_kept and min_p <= 0:
            return x
    ordered, order = x.sort(descending=True, stable=True)
    weight = torch.exp(ordered - ordered[:, :1]).nan_to_num(0.0)
    k, p = _column(x, top_k), _column(x, top_p)
    limited = (k >= 1) & (k < columns)
    last = torch.where(limited, k, columns).long() - 1
    kept = ordered >= ordered.gather(-1, last)
    weight = torch.where(kept, weight, 0.0)
    above = _of_first_equal(ordered, weight.cumsum(-1) - weight)
    kept &= (above < p * weight.sum(-1, keepdim=True)) | (p >= 1) | (above == 0)
    kept &= ~(weight < _column(x, min_p).clamp(max=1))
    return x.masked_fill(~kept.scatter(-1, order, kept), -math.inf)


def _column(x, value):
    """One number per row. It is filled in on the device, because a CUDA graph cannot capture a
    copy."""
    return value.to(x.dtype) if isinstance(value, torch.Tensor) else x.new_full((len(x), 1), value)


def _of_first_equal(ordered, values):
    """At each position the value at the first position with an equal element."""
    place = torch.arange(ordered.shape[-1], device=ordered.device).expand(ordered.shape)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return values.gather(-1, torch.where(new, place, 0).cummax(-1).values)


def exponentials(x, state, first):
    """-log(1 - u), with u from word i % 4 of position i // 4 of each row's sequence."""
    calls = torch.arange(-(-x.shape[-1] // 4), device=x.device)
    rows = torch.arange(first, first + len(x), device=x.device)
    position = (state[1:] >> 2) + calls
    shape = len(rows), len(calls)
    words = philox(state[:1], position.expand(shape), rows[:, None].expand(shape))
    u = words.flatten(1)[:, : x.shape[-1]].float() * 2.0**-32 + 2.0**-33
    return -torch.log1p(-u.to(x.dtype))
