"""mean and rstd of a row as functions of the row, for double backward.

The backward takes them as numbers. What the forward added to the variance, eps, is not among its
arguments: it is what rstd has that the variance has not, and no function of the row.
"""

from __future__ import annotations

import torch


def of_x(x, rstd, mean=None, **others):
    """Statistics of x, by name: rstd, and the mean where the norm subtracts it."""
    xw = x.to(torch.promote_types(x.dtype, torch.float32))
    found = {} if mean is None else {"mean": xw.mean(-1, keepdim=True)}
    variance = (xw - found.get("mean", 0.0)).square().mean(-1, keepdim=True)
    eps = (rstd.detach().pow(-2) - variance.detach()).clamp_min(0.0)
    return {**found, "rstd": torch.rsqrt(variance + eps)}


def of_h(h, rstd, mean=None, **others):
    """The same where what is normalised is called h."""
    return of_x(h, rstd, mean)
