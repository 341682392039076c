"""batch_norm: training with the statistics of the batch, inference with running statistics, and the
steps for a batch that is split over processes."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Operator, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.norm.group_norm import flat, restored

from . import heuristics, spec

__all__ = [
    "backward_elemt",
    "backward_reduce",
    "batch_norm",
    "checked",
    "inference",
    "stats",
    "update",
]


def _cuda(trick: str, idea: str, suffix: str = "", file: str | None = None, **more) -> Rung:
    """`fits`: the name of its requirements, if it is not the trick's."""
    fits = getattr(heuristics, f"fits_{more.pop('fits', trick)}")
    configs = more.pop("configs", None) or getattr(heuristics, f"{trick.upper()}_CONFIGS")
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"cuda:{trick}{suffix}",
        idea,
        supports=fits,
        configs=configs,
        sources=(f"cuda_{file or trick}.cu",),
        **more,
    )


def _training(suffix: str) -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `suffix` is "_backward" in a backward's."""
    block = {"fits": "channel", "configs": heuristics.THREADS_CONFIGS, "dispatchable": False}
    teaching = () if suffix else (
        _cuda("welford", "a block per channel, a division per element", **block),
        _cuda("two_passes", "a block per channel: the mean, then the squares about it", **block),
    )  # fmt: skip
    return (
        *rungs.pytorch(suffix),
        *teaching,
        _cuda(
            "split", "a channel split over blocks, in two launches", suffix, f"split{suffix}",
            fits="split" if suffix else "split_statistics",
        ),
        _cuda(
            "channels_split", "channels last: sums of columns, in two launches", suffix,
            f"channels_split{suffix}", heuristic=heuristics.choose_channels_split,
            fits="channels_split" if suffix else "channels_split_statistics",
        ),
        _cuda(
            "cluster", "a channel in the shared memory of a cluster", suffix,
            heuristic=heuristics.choose_cluster,
        ),
        _cuda(
            "channels", "channels last: a slab of channels in the shared memory of a cluster",
            suffix, f"channels{suffix}", heuristic=heuristics.choose_channels,
        ),
        _cuda(
            "registers", "channels first: adjacent channels in the registers of a cluster", suffix,
            f"registers{suffix}", heuristic=heuristics.choose_registers,
        ),
        _cuda(
            "channels_registers", "channels last: a slab in the registers of a cluster", suffix,
            f"channels_registers{suffix}", heuristic=heuristics.choose_channels_registers,
        ),
    )  # fmt: skip


def _step(side: str, file: str) -> tuple[Rung, ...]:
    """Rungs of a step: each is one of the launches of a training rung."""
    configs, of = heuristics.STEP_CONFIGS, "_statistics" if side == "stats" else ""
    return (
        Rung("native", "torch", f"torch_rungs:native_{side}", "PyTorch's own operators"),
        _cuda("split", "channels first", f"_{side}", f"split{file}", configs=configs["split"],
              fits=f"split{of}"),
        _cuda("channels_split", "channels last", f"_{side}", f"channels_split{file}",
              configs=configs["channels_split"], fits=f"channels_split{of}"),
    )  # fmt: skip


def _ladder(operator: Operator, its_rungs: tuple[Rung, ...], order=heuristics.order) -> Ladder:
    return Ladder(operator, its_rungs, __name__, order, heuristics.bucket)


LADDER = _ladder(spec.FORWARD, _training(""))
LADDER_BACKWARD = _ladder(spec.BACKWARD, _training("_backward"), heuristics.order_backward)
LADDER_INFERENCE = _ladder(
    spec.INFERENCE,
    (
        *rungs.pytorch("_inference"),
        _cuda("scale", "running statistics folded into a scale and a shift"),
    ),
    heuristics.order_inference,
)
LADDER_INFERENCE_BACKWARD = _ladder(
    spec.INFERENCE_BACKWARD,
    rungs.pytorch("_inference_backward"),
    heuristics.order_inference_backward,
)
_batch_norm = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=spec.statistics)
inference = bind(LADDER_INFERENCE, LADDER_INFERENCE_BACKWARD, vmap="loop")
stats = bind(_ladder(spec.STATS, _step("stats", ""), heuristics.order_step), vmap="loop")
backward_reduce = bind(
    _ladder(spec.REDUCE, _step("backward_reduce", "_backward"), heuristics.order_step), vmap="loop"
)
backward_elemt = bind(
    _ladder(spec.GX, _step("backward_elemt", "_backward"), heuristics.order_step), vmap="loop"
)


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float | torch.Tensor = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias of each channel, as
    torch.nn.functional.batch_norm.

    Args:
        input: shape (N, C, *). float32, float16 and bfloat16 have GPU rungs; float64 uses PyTorch's
            kernels. Channels first and channels last (`torch.channels_last`) are read without a
            copy; other strides are copied to channels first.
        running_mean, running_var: shape (C,). In training they are optional, and updated in place
            with the mean and variance of the batch (the variance divided by the number of elements
            minus one). Otherwise they are required, and used as the statistics.
        weight, bias: shape (C,), or None; may be wider than the input.
        training: whether to normalize with the mean and variance of the batch.
        momentum: the weight of the batch's statistics in the running ones; a number, or a tensor
            with one element.
        eps: added to the variance.

    Returns:
        A tensor of the input's shape, dtype and memory format.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree, running statistics are missing where they are needed,
            or in training a channel has only one element.
    """
    if isinstance(input, torch.Tensor) and input.shape == (0,):
        return input.clone()  # PyTorch looks for no channels there
    checked(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if not training:
        for name, p in (("running_mean", running_mean), ("running_var", running_var)):
            if p is None:
                raise ValueError(f"{name}: must be given where training is False")
        x, last = flat(input)
        wide = torch.promote_types(input.dtype, torch.float32)
        statistics = running_mean.to(wide), running_var.to(wide)
        y = inference(x, weight, bias, *statistics, eps, last)
        return restored(y, last, input.shape)
    n = math.prod(input.shape) // max(input.shape[1], 1)
    if n == 1:
        raise ValueError(
            "input: in training a channel needs more than one element, but has shape "
            f"{tuple(input.shape)}"
        )
    x, last = flat(input)
    y, mean, _, var = _batch_norm(x, weight, bias, eps, last)
    if n:
        update(running_mean, running_var, mean, var, momentum)
    return restored(y, last, input.shape)


def checked(input: torch.Tensor, **of_channels: torch.Tensor | None) -> None:
    """Raise if input has no channels, or if another given argument does not have one per channel.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree.
    """
    arguments.floating("input", input)
    if input.ndim < 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2 or more")
    for name, p in of_channels.items():
        if p is not None and tuple(p.shape) != (input.shape[1],):
            raise ValueError(f"{name}: has shape {tuple(p.shape)}, should be ({input.shape[1]},)")


def update(running_mean, running_var, mean, var, momentum: float | torch.Tensor) -> None:
    """running = (1 - momentum) running + momentum new, in place, for those that are given."""
    pairs = [(r, t.detach()) for r, t in ((running_mean, mean), (running_var, var))
             if r is not None]  # fmt: skip
    with torch.no_grad():
        one_dtype = all(r.dtype == t.dtype for r, t in pairs)
        if pairs and one_dtype and not isinstance(momentum, torch.Tensor):
            torch._foreach_lerp_([r for r, _ in pairs], [t for _, t in pairs], momentum)
        else:
            for r, t in pairs:
                weight = momentum.to(r.dtype) if isinstance(momentum, torch.Tensor) else momentum
                r.lerp_(t.to(r.dtype), weight)
