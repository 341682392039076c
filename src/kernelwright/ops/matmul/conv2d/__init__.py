"""conv2d: a convolution of images with channels last, computed as an implicit matrix product."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, arguments, rungs
from kernelwright.dispatch import Rule, bind

from . import heuristics, spec

__all__ = ["LADDER", "conv2d"]

RUNGS = (
    *rungs.pytorch(
        manual="the matrix of patches in memory, then a product",
        native="cuDNN",
        compiled=None,
    ),
    rungs.cuda("naive", "", "one thread per result", heuristics.fits, ({},), dispatchable=False),
    rungs.cuda(
        "implicit",
        "",
        "tiles of the matrix of patches are assembled in shared memory",
        heuristics.fits_implicit,
        ({},),
        dispatchable=False,
    ),
)
LADDER = Ladder(
    spec.OPERATOR, RUNGS, __package__, heuristics.order, heuristics.bucket, public=spec.public
)


def _save(ctx, inputs, output):
    x, weight, bias, *ctx.geometry = inputs
    ctx.save_for_backward(x, weight)
    ctx.biased = None if bias is None else list(bias.shape)


def _backward(ctx, gy):
    x, weight = (t.permute(0, 3, 1, 2) for t in ctx.saved_tensors)
    gx, gweight, gbias = torch.ops.aten.convolution_backward(
        gy.permute(0, 3, 1, 2), x, weight, ctx.biased, *ctx.geometry, False, [0, 0], 1,
        [bool(wanted) for wanted in ctx.needs_input_grad[:3]],
    )  # fmt: skip
    last = (None if g is None else g.permute(0, 2, 3, 1) for g in (gx, gweight))
    return *last, gbias, None, None, None


_convolve = bind(LADDER, rule=Rule(_save, _backward), vmap="loop", differentiable="native")


def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """A convolution of images, as torch.nn.functional.conv2d with one group.

    Args:
        input: shape (N, C, H, W); copied to channels last if it is stored differently.
        weight: shape (O, C, R, S), of the input's dtype.
        bias: shape (O,).
        stride, padding, dilation: one number for both dimensions, or one per dimension.

    Returns:
        Shape (N, O, P, Q), with channels last in memory.

    Raises:
        TypeError: an argument is not floating point, or has a dtype other than the input's.
        ValueError: a shape or a number does not fit.
    """
    for name, t in (("input", input), ("weight", weight)):
        arguments.floating(name, t)
        if t.ndim != 4:
            raise ValueError(f"{name}: has {t.ndim} dimensions, should have 4")
    if weight.shape[1] != input.shape[1] or 0 in weight.shape[2:]:
        raise ValueError(
            f"weight: has shape {tuple(weight.shape)}, should be (O, {input.shape[1]}, R, S)"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and t.dtype != input.dtype:
            raise TypeError(f"{name}: is {t.dtype}, should be {input.dtype} as the input")
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"bias: has shape {tuple(bias.shape)}, should be ({weight.shape[0]},)")
    geometry = [_pair(*given) for given in (("stride", stride, 1), ("padding", padding, 0),
                                            ("dilation", dilation, 1))]  # fmt: skip
    for i, name in enumerate(("height", "width")):
        if spec.size(input.shape[2 + i], weight.shape[2 + i], *(g[i] for g in geometry)) < 1:
            raise ValueError(f"input: its {name} of {input.shape[2 + i]} is less than the filter's")
    x, w = (t.permute(0, 2, 3, 1).contiguous() for t in (input, weight))
    return _convolve(x, w, bias, *geometry).permute(0, 3, 1, 2)


def _pair(name: str, value: int | tuple[int, int], least: int) -> list[int]:
    both = [value, value] if isinstance(value, int) else list(value)
    if len(both) != 2 or any(not isinstance(v, int) or v < least for v in both):
        raise ValueError(f"{name}: {value} should be one or two integers of at least {least}")
    return both
