"""What the error analyses behind `Operator.noise` share: float32's unit roundoff, and sums over a
tree.

A sum of n terms over a tree errs by u times sqrt(log2 n) of the root of the terms'
squares, roundings being taken as independent (Higham, Accuracy and Stability of Numerical
Algorithms, 4.2; Higham and Mary 2019).
"""

from __future__ import annotations

import math

import torch

#: float32's unit roundoff, as error analyses write it: a rounded number is off by u of its size.
U = 2.0**-24


def root_levels(n: int) -> float:
    """Square root of the levels of a tree that adds n values."""
    return math.log2(max(n, 2)) ** 0.5


def mean_noise(terms: torch.Tensor) -> torch.Tensor:
    """Size and error, in units of u, of the mean of each row's terms."""
    n = max(terms.shape[-1], 1)
    norm = terms.norm(dim=-1, keepdim=True)
    return terms.mean(-1, keepdim=True).abs() + root_levels(n) * norm / n
