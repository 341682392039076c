"""histc and bincount: the number of elements in each bin, from one addition in L2 per element to
one in shared memory per run."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec


def _counted(trick: str, entry: str, idea: str, supports, configs) -> Rung:
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"cuda:{entry}",
        idea,
        supports=supports,
        configs=configs,
        sources=(f"cuda_{trick}.cu", "cuda_clear.cu"),
    )


RUNGS = (
    *rungs.pytorch(
        manual="bins in order, and a search for where each begins",
        native="a scatter of ones",
        compiled=None,
    ),
    Rung("compiled", "inductor", "torch_rungs:native", "a scatter of ones under torch.compile"),
    _counted(
        "global",
        "global_",
        "an addition in L2 for each element",
        heuristics.fits,
        heuristics.GLOBAL,
    ),
    _counted(
        "runs",
        "runs",
        "counts of a few warps in shared memory, and an addition for each run",
        heuristics.fits_shared,
        heuristics.COUNTS,
    ),
    _counted(
        "shared",
        "shared",
        "counts of a block in shared memory, and additions of 1",
        heuristics.fits_shared,
        heuristics.COUNTS,
    ),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
_histc = bind(LADDER, vmap="loop")


def histc(
    input: torch.Tensor,
    bins: int = 100,
    min: float = 0,
    max: float = 0,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The number of elements in each of `bins` intervals of equal width, as torch.histc. Bins are
    computed in float64 and counts are exact; only the result is rounded to the input's dtype.

    Args:
        input: any shape; no gradient. Floating types, integers and bool have GPU rungs.
        bins: number of intervals; at least 1.
        min, max: the ends of the range. Elements outside and NaNs are not counted; max belongs to
            the last bin. If both are equal, the smallest and the largest element are used, for
            which the host waits.
        out: a tensor of shape (bins,), or an empty one, to which the result is copied.

    Returns:
        A tensor of shape (bins,), of the input's dtype; int64 for integers and bool.

    Raises:
        TypeError: input is not a tensor of real numbers.
        ValueError: bins is less than 1, max is less than min, or an end is not finite.
    """
    _real(input)
    if bins < 1:
        raise ValueError(f"bins: must be at least 1, is {bins}")
    if max < min:
        raise ValueError(f"max: {max} is less than min, {min}")
    low, high = float(min), float(max)
    if low == high and input.numel():
        low, high = (float(t.item()) for t in torch.aminmax(input.detach()))
    for name, end in (("min", low), ("max", high)):
        if not math.isfinite(end):
            raise ValueError(f"{name}: {end} is not finite")
    if low == high:
        low, high = low - 1, high + 1
    counts = _histc(input.detach(), bins, low, high)
    counts = counts.to(input.dtype) if input.is_floating_point() else counts
    return counts if out is None else written(out, counts)


def bincount(input: torch.Tensor, *, minlength: int = 0) -> torch.Tensor:
    """How often each integer occurs, as torch.bincount without weights; for weighted sums use
    `index_add`. The host waits for the largest element, which determines the size of the result.

    Args:
        input: one-dimensional, integers that are not negative.
        minlength: the minimum size of the result.

    Returns:
        int64 counts of 0, 1, ..., up to the largest element or minlength - 1.

    Raises:
        TypeError: input is not a tensor of integers.
        ValueError: input has another number of dimensions or a negative element, or minlength is
            negative.
    """
    arguments.tensor("input", input)
    if input.is_floating_point() or input.is_complex() or input.dtype == torch.bool:
        raise TypeError(f"input: must be integers, is {input.dtype}")
    if input.ndim != 1:
        raise ValueError(f"input: must have one dimension, has {input.ndim}")
    if minlength < 0:
        raise ValueError(f"minlength: must not be negative, is {minlength}")
    least, most = (t.item() for t in torch.aminmax(input)) if input.numel() else (0, -1)
    if least < 0:
        raise ValueError(f"input: must not be negative, has {least}")
    bins = minlength if minlength > most + 1 else int(most) + 1
    if bins == 0:
        return torch.zeros(0, dtype=torch.int64, device=input.device)
    return _histc(input, bins, 0.0, float(bins))


def _real(input: torch.Tensor) -> None:
    arguments.tensor("input", input)
    if input.is_complex():
        raise TypeError(f"input: must be real, is {input.dtype}")
