"""rms_norm over the last dimensions: a statistic is saved, two gradients come back."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, Rung, arguments
from kernelwright.dispatch import bind

from . import choose, spec


def _rungs(backward: str, supports, configs) -> tuple[Rung, ...]:
    """The ladder from the bottom up; `backward` is the suffix of the backward's entries."""
    return (
        Rung(
            "manual",
            "torch",
            f"torch_rungs:manual{backward}",
            "the formula, a kernel a line",
            serves=False,
        ),
        Rung("native", "torch", f"torch_rungs:native{backward}", "PyTorch's own operator"),
        Rung(
            "triton_row",
            "triton",
            f"triton_row:plan{backward}",
            "one row in registers; the weight's gradient in two steps",
            supports=supports,
            configs=configs,
        ),
    )


LADDER = Ladder(
    spec.FORWARD,
    _rungs("", choose.fits, choose.CONFIGS),
    __name__,
    choose.order,
    choose.bucket,
    "peers:PEERS",
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    _rungs("_backward", choose.fits_backward, choose.CONFIGS_BACKWARD),
    __name__,
    choose.order,
    choose.bucket,
    "peers:PEERS",
)
# samples of a vmap may each have a weight: no batch of rows with one weight
_rms_norm = bind(LADDER, LADDER_BACKWARD, vmap="loop")


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions, as torch.nn.functional.rms_norm.

    Args:
        input: shape (*, *normalized_shape). float32, float16 and bfloat16 have GPU rungs; float64
            is served by PyTorch.
        normalized_shape: the last dimensions, over which the mean is taken.
        weight: of normalized_shape, or None for no scaling; may be wider than the input.
        eps: added to the mean square; by default float32's epsilon (float64's for float64).

    Returns:
        A tensor of the input's shape and dtype.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree.
    """
    arguments.floating("input", input)
    dims = tuple(normalized_shape)
    if not dims:
        raise ValueError("normalized_shape: must name at least one dimension")
    if tuple(input.shape[-len(dims) :]) != dims:
        raise ValueError(
            f"normalized_shape: {dims} is not the end of the input's shape {tuple(input.shape)}"
        )
    if weight is not None and tuple(weight.shape) != dims:
        raise ValueError(f"weight: has shape {tuple(weight.shape)}, should be {dims}")
    if eps is None:
        eps = torch.finfo(torch.promote_types(input.dtype, torch.float32)).eps
    if len(dims) == 1:
        return _rms_norm(input, weight, eps)[0]
    rows = input.flatten(-len(dims))
    return _rms_norm(rows, weight if weight is None else weight.flatten(), eps)[0].view(input.shape)
