"""mean and rstd of a row as functions of the row, for the double backward.

The backward takes them as constants. The eps that the forward added to the variance is not among
its arguments: it is the difference between 1 / rstd^2 and the variance, and does not depend on the
row.
"""

from __future__ import annotations

import torch


def of_x(x, rstd, mean=None, **others):
    """The statistics of x, by name: rstd, and the mean if the norm subtracts it."""
    xw = x.to(torch.promote_types(x.dtype, torch.float32))
    means = {} if mean is None else {"mean": xw.mean(-1, keepdim=True)}
    variance = (xw - means.get("mean", 0.0)).square().mean(-1, keepdim=True)
    eps = (rstd.detach().pow(-2) - variance.detach()).clamp_min(0.0)
    return {**means, "rstd": torch.rsqrt(variance + eps)}


def of_h(h, rstd, mean=None, **others):
    """The same if the normalized rows are called h."""
    return of_x(h, rstd, mean)
