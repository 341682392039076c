"""softmax: what it computes and how far the ladder climbs, in a line."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import choose, spec


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The ladder from the bottom up; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(side, compiled=None),
        rungs.triton("block", side, "a block of elements a program", choose.fits, choose.CONFIGS),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, choose.order, choose.bucket)
LADDER_BACKWARD = Ladder(spec.BACKWARD, _rungs("_backward"), __name__, choose.order, choose.bucket)
_softmax = bind(LADDER, LADDER_BACKWARD)


def softmax(input: torch.Tensor) -> torch.Tensor:
    """The square of each element.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types are
            served by PyTorch.

    Returns:
        A tensor of the input's shape and dtype.

    Raises:
        TypeError: input is not a tensor of floating-point numbers.
    """
    arguments.floating("input", input)
    return _softmax(input)
