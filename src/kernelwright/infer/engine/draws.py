"""The choice of the next tokens from logits; every row on its own.

Sums of probabilities are sums of integers, whose order does not matter. So a row's token does not
depend on the other rows, whichever algorithm a device uses for the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.infer.sampling import Sampling

NO_TOKEN = -1
_ONE = 2.0**42  # the weight of the most likely token; tokens with less than 1/2 are never drawn


def draw(
    logits_RV: torch.Tensor, how_R: Sequence[Sampling], uniform_R: Sequence[float]
) -> torch.Tensor:
    """A token for each row: int64, (R,). NO_TOKEN for a row without a largest finite logit.

    Args:
        uniform_R: random numbers of at least 0 and less than 1. A row's token is where the sum of
            its probabilities, after the filters of `Sampling`, exceeds this number. Rows of
            temperature 0 do not use theirs.
    """
    most_R, token_R = logits_RV.max(-1)
    rows = [r for r, how in enumerate(how_R) if how.temperature > 0]
    if rows:
        at_S = torch.tensor(rows, device=logits_RV.device)
        how_S5 = torch.tensor(
            [_numbers(how_R[r], uniform_R[r]) for r in rows],
            dtype=torch.float64, device=logits_RV.device,
        )  # fmt: skip
        filtered = any(how_R[r] != Sampling(how_R[r].temperature) for r in rows)
        token_R[at_S] = _drawn(logits_RV[at_S], how_S5, filtered)
    return token_R.masked_fill(~most_R.isfinite(), NO_TOKEN)


def _numbers(how: Sampling, uniform: float) -> tuple[float, ...]:
    return how.temperature, how.top_k, how.top_p, how.min_p, uniform


def _drawn(logits_SV: torch.Tensor, how_S5: torch.Tensor, filtered: bool) -> torch.Tensor:
    temperature, top_k, top_p, min_p, uniform = how_S5[:, :, None].unbind(1)
    x_SV = logits_SV.double()
    x_SV = (x_SV - x_SV.amax(-1, keepdim=True)) / temperature
    weight_SV = _weights(x_SV)
    if filtered:
        least = _threshold(x_SV, top_k, top_p)
        removed = (x_SV < least) | (weight_SV < min_p * _ONE)
        weight_SV = weight_SV.masked_fill(removed, 0)
    sum_SV = weight_SV.cumsum(-1)
    total = sum_SV[:, -1:]
    at = (uniform * total).long().clamp(max=total - 1)
    return torch.searchsorted(sum_SV, at, right=True)[:, 0]


def _weights(x_SV: torch.Tensor) -> torch.Tensor:
    """exp(x) as integers, of x up to 0."""
    return (x_SV.exp() * _ONE).round().nan_to_num(0.0).long()


def _threshold(x_SV: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The least x that top_k and top_p keep, in each row."""
    columns = x_SV.shape[-1]
    sorted_SV = x_SV.sort(-1, descending=True).values
    limited = (top_k >= 1) & (top_k < columns)
    least = sorted_SV.gather(-1, torch.where(limited, top_k, columns).long() - 1)
    weight_SV = _weights(sorted_SV).masked_fill(sorted_SV < least, 0)
    sum_SV = weight_SV.cumsum(-1)
    kept_SV = (sum_SV - weight_SV < top_p * sum_SV[:, -1:]) | (top_p >= 1)
    last = (kept_SV.sum(-1, keepdim=True) - 1).clamp(min=0)
    return torch.maximum(least, sorted_SV.gather(-1, last))
