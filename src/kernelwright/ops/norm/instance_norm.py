"""instance_norm: group_norm with one channel per group."""

from __future__ import annotations

import math

import torch

from kernelwright.ops.elementwise.pointwise import silu as silu_of
from kernelwright.ops.norm.batch_norm import batch_norm, checked, update
from kernelwright.ops.norm.group_norm import flat, restored, with_statistics


def instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    silu: bool = False,
) -> torch.Tensor:
    """group_norm with one channel per group, as torch.nn.functional.instance_norm.

    Args:
        input: shape (N, C, *), as in `group_norm`; autocast does not change its dtype.
        running_mean, running_var: shape (C,), updated in place with the averages over the samples
            of their means and variances (the latter divided by the number of elements minus one).
        weight, bias, eps, silu: as in `group_norm`.
        use_input_stats: True normalizes with the mean and variance of each sample; False uses the
            running statistics and does not update them.
        momentum: the weight of the new statistics in the running statistics.

    Returns:
        A tensor of the input's shape, dtype and memory format.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree, running statistics are missing where they are needed,
            or a channel has only one element.
    """
    if not use_input_stats:
        y = batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
        return silu_of(y) if silu else y
    checked(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    channels = input.shape[1]
    elements = math.prod(input.shape[2:])
    if elements == 1:
        raise ValueError(
            f"input: a channel needs more than one element, but has shape {tuple(input.shape)}"
        )
    x, last = flat(input)
    y, mean, _ = with_statistics(x, weight, bias, channels, eps, last, silu)
    if input.numel() and not (running_mean is None and running_var is None):
        # from x: a variance taken from rstd would cancel against eps
        variance = x.detach().to(mean.dtype).var(1 if last else 2)
        update(running_mean, running_var, mean.mean(0), variance.mean(0), momentum)
    return restored(y, last, input.shape)
