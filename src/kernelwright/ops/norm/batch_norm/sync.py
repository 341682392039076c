"""batch_norm of a batch that is split over processes: one collective for the statistics, and one in
the backward for the two sums of each channel.

Each process contributes mean, variance and the number of its samples and positions, so that the
parts of the batch may have any sizes and may be empty. They are merged by the formula of Chan,
Golub and LeVeque in the order of the ranks, so that the result is bitwise identical in all
processes.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.dispatch import once
from kernelwright.ops import comm
from kernelwright.ops.norm.group_norm import flat, restored

from . import backward_elemt, backward_reduce, checked, inference, stats, update


def sync_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    momentum: float | torch.Tensor,
    eps: float,
    group: Any = None,
) -> torch.Tensor:
    """`batch_norm` in training, with the statistics of all processes' inputs.

    Args:
        input: shape (N, C, *); N and * may differ between processes.
        group: the process group; None for all processes.
        running_mean, running_var, weight, bias, momentum, eps: as in `batch_norm`.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree.
    """
    checked(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    x, last = flat(input)
    y, mean, var, count = _Sync.apply(x, weight, bias, eps, last, group)
    if input.numel() or count.item():  # else all are empty: no statistics
        # for a single element PyTorch divides by zero too
        update(running_mean, running_var, mean, var * (count / (count - 1)), momentum)
    return restored(y, last, input.shape)


class _Sync(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, last, group):
        mean, var, count = _merged(comm.gather(_own(x, last), group))
        y = inference(x, weight, bias, mean, var, eps, last)
        ctx.save_for_backward(x, weight, bias, mean, torch.rsqrt(var + eps), count)
        ctx.last, ctx.group = last, group
        ctx.mark_non_differentiable(mean, var, count)
        return y, mean, var, count

    @staticmethod
    @once(
        "sync_batch_norm: double backward is not supported; normalize the batch of one process, "
        "with kw.batch_norm"
    )
    def backward(ctx, gy, *_):
        x, weight, bias, mean, rstd, count = ctx.saved_tensors
        sums = mean.new_zeros((mean.numel(), 2))
        if x.numel():
            sums = backward_reduce(gy, x, mean, rstd, ctx.last) * (x.numel() // mean.numel())
        of_all = comm.add(sums, ctx.group) / count
        if weight is not None:
            of_all = of_all * weight[:, None]
        gx = backward_elemt(gy, x, weight, mean, rstd, of_all, ctx.last)
        gbias, gweight = sums.T.contiguous()
        gweight = None if weight is None else gweight.to(weight.dtype)
        gbias = None if bias is None else gbias.to(bias.dtype)
        return gx, gweight, gbias, None, None, None


def _own(x: torch.Tensor, last: bool) -> torch.Tensor:
    """Mean and variance of each channel, and the number of elements of a channel: (2 C + 1,)."""
    channels = x.shape[2 if last else 1]
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.numel() == 0:
        return x.new_zeros(2 * channels + 1, dtype=wide)
    count = x.new_full((1,), x.numel() // channels, dtype=wide)
    return torch.cat((*stats(x, last), count))


def _merged(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean, variance and count over all processes, from those of each: (processes, 2 C + 1)."""
    counts, (means, variances) = parts[:, -1:], parts[:, :-1].chunk(2, 1)
    total = counts.sum(0)
    mean = (counts * means).sum(0) / total
    var = (counts * (variances + (means - mean).square())).sum(0) / total
    return mean, var, total
