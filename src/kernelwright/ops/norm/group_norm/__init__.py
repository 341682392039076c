"""group_norm, optionally followed by silu."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.arguments import number

from . import heuristics, spec

__all__ = ["LADDER", "LADDER_BACKWARD", "flat", "group_norm", "restored", "with_statistics"]


def _rungs(suffix: str) -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `suffix` is "_backward" in a backward's."""

    def cuda(trick: str, idea: str, apart: bool = True) -> Rung:
        """`apart`: the kernels of the backward are in a separate file."""
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
        cuda("channels_registers", "channels last: a slab in the registers of a cluster"),
    )


LADDER = Ladder(
    spec.FORWARD, _rungs(""), __name__, heuristics.order, heuristics.bucket, public=spec.public
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, heuristics.order, heuristics.bucket
)
with_statistics = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=spec.statistics)


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
        input: shape (N, C, *). float32, float16 and bfloat16 have GPU rungs; float64 uses PyTorch's
            kernels. Channels first and channels last (`torch.channels_last`) are read without a
            copy; other strides are copied to channels first. Under CUDA autocast, 16-bit input is
            cast to float32.
        num_groups: number of groups of channels; must divide C.
        weight, bias: shape (C,), or None; may be wider than the input.
        eps: added to the variance; by default 1e-5.
        silu: apply x * sigmoid(x) to the result, in the same pass.

    Returns:
        A tensor of the input's shape, dtype and memory format.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape or num_groups does not agree, or a group has only one element.
    """
    eps = 1e-5 if eps is None else number(eps)
    _checked(input, num_groups, weight, bias)
    if math.prod(input.shape) == num_groups:
        raise ValueError(
            "input: a group needs more than one element, but all of shape "
            f"{tuple(input.shape)} have one"
        )
    if torch.is_autocast_enabled() and input.is_cuda and input.itemsize == 2:
        input = input.float()
    x, last = flat(input)
    y = with_statistics(x, weight, bias, num_groups, eps, last, silu)[0]
    return restored(y, last, input.shape)


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


def flat(input: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """(N, C, L), or (N, L, C) if channels are contiguous and positions are not; and which of
    them."""
    if input.ndim > 2 and not input.is_contiguous() and input.movedim(1, -1).is_contiguous():
        return input.movedim(1, -1).flatten(1, -2), True
    return input.flatten(2) if input.ndim > 2 else input.unsqueeze(2), False


def restored(y: torch.Tensor, last: bool, shape: torch.Size) -> torch.Tensor:
    """The inverse of `flat`, to the shape of the input."""
    if not last:
        return y.view(shape)
    return y.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
