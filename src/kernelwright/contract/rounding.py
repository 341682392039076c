"""Shared parts of the error analyses behind `Operator.noise`: float32's unit roundoff, and sums
over a tree, in a chain and on tensor cores.

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


#: Products that one instruction of a tensor core adds to the sum so far.
OF_AN_INSTRUCTION = 16


def tensor_core_noise(k: int, squares: torch.Tensor) -> torch.Tensor:
    """Error, in units of u, of sums of k products of 16-bit numbers on tensor cores.

    Each instruction adds 16 products to the sum so far and truncates the result: it is too small by
    0.7 u of its size on average. Errors have the sign of the sum, so that they do not average out:
    over n steps that end near zero, where the error counts most, the partial sums of terms with the
    sum of squares T add up to n sqrt(T / 12) (the variance of the area under a Brownian bridge).
    The n steps are those of a kernel that keeps its sums in registers for all of k, as cuBLAS's
    for results that fill the GPU; fewer steps are not a property of the operator. Short sums have
    the error of a tree.

    Args:
        squares: T, float64.
    """
    truncated = 0.7 * (k / OF_AN_INSTRUCTION) / 12**0.5
    return max(truncated, root_levels(k)) * squares.sqrt()


def mean_noise(terms: torch.Tensor) -> torch.Tensor:
    """Size and error, in units of u, of the mean of each row's terms."""
    n = max(terms.shape[-1], 1)
    norm = terms.norm(dim=-1, keepdim=True)
    return terms.mean(-1, keepdim=True).abs() + root_levels(n) * norm / n
