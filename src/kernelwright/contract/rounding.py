"""Shared parts of the error analyses behind `Operator.noise`: float32's unit roundoff, and sums
over a tree.

If roundings are independent, the error of summing n terms in a tree is about u * sqrt(log2 n) times
the root of the sum of the terms' squares (Higham, Accuracy and Stability of Numerical Algorithms,
4.2; Higham and Mary 2019).
"""

from __future__ import annotations

import math

import torch

#: float32's unit roundoff: the relative error of rounding a number is at most u.
U = 2.0**-24


def root_levels(n: int) -> float:
    """Square root of the levels of a tree that adds n values."""
    return math.log2(max(n, 2)) ** 0.5


def mean_noise(terms: torch.Tensor) -> torch.Tensor:
    """Size and error, in units of u, of the mean of each row's terms."""
    n = max(terms.shape[-1], 1)
    norm = terms.norm(dim=-1, keepdim=True)
    return terms.mean(-1, keepdim=True).abs() + root_levels(n) * norm / n
