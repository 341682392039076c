"""Shared parts of the error analyses behind `Operator.noise`: float32's unit roundoff, and sums
over a tree and in a chain.

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


def chain_noise(k: int, squares: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Error, in units of u, of sums of k terms that are added one after another.

    Step i rounds the partial sum S_i. For terms in random order with the sum S and the sum of
    squares T, S_i is on average i/k S and has a variance of about i/k (1 - i/k) T: a large sum
    implies large partial sums. The error of k independent roundings is the root of the sum of
    their squares,
    S^2 (k + 1)(2k + 1) / 6k + T (k^2 - 1) / 6k.

    Args:
        squares: T, float64.
        total: S, of the same shape, float64.
    """
    k = max(k, 1)
    of_total, of_squares = (k + 1) * (2 * k + 1) / (6 * k), (k * k - 1) / (6 * k)
    return (of_total * total.square() + of_squares * squares).sqrt()


def mean_noise(terms: torch.Tensor) -> torch.Tensor:
    """Size and error, in units of u, of the mean of each row's terms."""
    n = max(terms.shape[-1], 1)
    norm = terms.norm(dim=-1, keepdim=True)
    return terms.mean(-1, keepdim=True).abs() + root_levels(n) * norm / n
