"""group_norm and instance_norm, with an optional silu behind them."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

__all__ = ["LADDER", "LADDER_BACKWARD", "group_norm", "instance_norm"]


def _rungs(suffix: str) -> tuple[Rung, ...]:
    """The ladder from the bottom up; `suffix` is "_backward" in a backward's."""

    def cuda(trick: str, idea: str, apart: bool = True) -> Rung:
        """`apart`: the backward's kernels are in a file of their own."""
        file = f"cuda_{trick}{suffix if apart else ''}.cu"
        return Rung(
            f"cuda_{trick}",
            "cuda",
            f"cuda:{trick}{suffix}",
            idea,
            supports=getattr(heuristics, f"fits_{trick}"),
            configs=getattr(heuristics, f"{trick.upper()}_CONFIGS"),
            heuristic=getattr(heuristics, f"choose_{trick}", None),
            sources=(file, "cuda_parameters.cu") if suffix else (file,),
        )

    return (
        *rungs.pytorch(suffix),
        cuda("block", "a group read twice by a block", apart=False),
        cuda("split", "a group split over blocks, in two launches"),
        cuda("channels_split", "channels last: vectors over channels, in two launches"),
        cuda("cluster", "a group in the shared memory of a cluster", apart=False),
        cuda("channels", "channels last: a slab of channels in the shared memory of a cluster"),
    )


LADDER = Ladder(
    spec.FORWARD, _rungs(""), __name__, heuristics.order, heuristics.bucket, public=spec.public
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, heuristics.order, heuristics.bucket
)
_group_norm = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=spec.statistics)


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float | None = None,
    *,
    silu: bool = False,
) -> torch.Tensor:
    """(x - mean x) / sqrt(var x + eps) * weight + bias over groups of channels, as
    torch.nn.functional.group_norm.

    Args:
        input: shape (N, C, *). float32, float16 and bfloat16 have GPU rungs; float64 is served by
            PyTorch. Channels first and channels last (`torch.channels_last`) are read as they lie;
            other strides are copied to channels first. Under CUDA autocast, 16-bit input is cast
            to float32.
        num_groups: of channels; divides C.
        weight, bias: shape (C,), or None; may be wider than the input.
        eps: added to the variance; by default 1e-5.
        silu: x * sigmoid(x) of the result, in the same pass.

    Returns:
        A tensor of the input's shape, dtype and memory format.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape or num_groups does not agree, or a group has only one element.
    """
    eps = 1e-5 if eps is None else eps
    _checked(input, num_groups, weight, bias)
    if math.prod(input.shape) == num_groups:
        raise ValueError(
            "input: a group needs more than one element, but all of shape "
            f"{tuple(input.shape)} have one"
        )
    if torch.is_autocast_enabled() and input.is_cuda and input.itemsize == 2:
        input = input.float()
    x, last = flat(input)
    y = _group_norm(x, weight, bias, num_groups, eps, last, silu)[0]
    return restored(y, last, input.shape)


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
    """group_norm with a group for each channel, as torch.nn.functional.instance_norm.

    Args:
        input: shape (N, C, *), as `group_norm` takes it; autocast leaves its dtype.
        running_mean, running_var: shape (C,), updated in place with the mean over the samples of
            their means and variances (over one element less).
        weight, bias, eps, silu: as in `group_norm`.
        use_input_stats: must be True; with running statistics use `kw.batch_norm`.
        momentum: the weight of the new statistics in the running ones.

    Returns:
        A tensor of the input's shape, dtype and memory format.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree, or a channel has only one element.
        NotImplementedError: use_input_stats is False.
    """
    if not use_input_stats:
        raise NotImplementedError("use_input_stats: must be True; use kw.batch_norm otherwise")
    arguments.floating("input", input)
    if input.ndim < 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2 or more")
    channels = input.shape[1]
    _checked(input, channels, weight, bias)
    elements = math.prod(input.shape[2:])
    if elements == 1:
        raise ValueError(
            f"input: a channel needs more than one element, but has shape {tuple(input.shape)}"
        )
    x, last = flat(input)
    y, mean, rstd = _group_norm(x, weight, bias, channels, eps, last, silu)
    with torch.no_grad():
        if input.numel():
            _update("running_mean", running_mean, mean, momentum)
            variance = (rstd.pow(-2) - eps).clamp_min(0.0) * (elements / (elements - 1))
            _update("running_var", running_var, variance, momentum)
    return restored(y, last, input.shape)


def _update(name, running, of_samples, momentum):
    """running = (1 - momentum) running + momentum (mean over the samples), where there is one."""
    if running is None:
        return
    if running.shape != of_samples.shape[1:]:
        raise ValueError(
            f"{name}: has shape {tuple(running.shape)}, should be {tuple(of_samples.shape[1:])}"
        )
    running.lerp_(of_samples.mean(0).to(running.dtype), momentum)


def _checked(input, num_groups, weight, bias):
    arguments.floating("input", input)
    if input.ndim < 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2 or more")
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise ValueError(
            f"num_groups: {num_groups} does not divide the input's {channels} channels"
        )
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and tuple(p.shape) != (channels,):
            raise ValueError(f"{name}: has shape {tuple(p.shape)}, should be ({channels},)")


def flat(input):
    """(N, C, L), or (N, L, C) where channels lie side by side and positions do not; which."""
    if input.ndim > 2 and not input.is_contiguous() and input.movedim(1, -1).is_contiguous():
        return input.movedim(1, -1).flatten(1, -2), True
    return input.flatten(2) if input.ndim > 2 else input.unsqueeze(2), False


def restored(y, last, shape):
    """The way back to the input's shape."""
    if not last:
        return y.view(shape)
    return y.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
