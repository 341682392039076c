"""kl_div: PyTorch's formula with the argument names and errors of this library.

It has no ladder: it is composed of PyTorch's elementwise operators and a sum, and has the memory
traffic of PyTorch's function, operator by operator. torch.compile fuses them.
"""

from __future__ import annotations

import torch

from kernelwright.contract import arguments

from ._options import legacy_reduction

REDUCTIONS = ("none", "batchmean", "sum", "mean")


def kl_div(
    input: torch.Tensor,
    target: torch.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> torch.Tensor:
    """target * (log target - input), the Kullback-Leibler divergence of input from target, as
    torch.nn.functional.kl_div.

    Args:
        input: log-probabilities, any shape.
        target: probabilities that broadcast with the input, or their logarithms with `log_target`.
            An element of 0 contributes 0.
        size_average, reduce: deprecated; if one is given, it replaces `reduction`.
        reduction: "batchmean" divides the sum by the size of the first dimension, which is the
            mathematical definition of the divergence; "mean" divides it by the number of elements;
            "sum"; "none".
        log_target: whether target contains logarithms.

    Returns:
        The divergence: one number, or one per element if reduction is "none".

    Raises:
        TypeError: input or target is not floating point.
        ValueError: the shapes do not broadcast, or reduction is none of the four.
    """
    arguments.floating("input", input)
    arguments.floating("target", target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: must be one of {', '.join(REDUCTIONS)}, is {reduction!r}")
    pairs = zip(reversed(input.shape), reversed(target.shape), strict=False)
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise ValueError(
            f"target: shape {tuple(target.shape)} does not broadcast with input's "
            f"{tuple(input.shape)}"
        )
    return torch.nn.functional.kl_div(input, target, reduction=reduction, log_target=log_target)
