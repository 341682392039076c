"""upsample_nearest2d: images enlarged or reduced, each output a copy of the nearest pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernelwright.contract import Ladder, Rung, autocast, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.vision.images import as_images
from kernelwright.ops.vision.sizes import sizes

from . import heuristics, spec


def _rungs(side: str = "") -> tuple[Rung, ...]:
    return (
        # PyTorch's index_add adds gradients by atomics on a GPU
        *(
            replace(rung, deterministic=not side)
            for rung in rungs.pytorch(
                side, manual="pixels by their numbers, rows first", compiled=None
            )
        ),
        rungs.cuda("naive", side, "a pixel per thread", heuristics.fits, heuristics.THREADS),
        rungs.cuda(
            "columns", side, "planes, for any scale", heuristics.fits_columns, heuristics.COLUMNS
        ),
        rungs.cuda(
            "channels", side, "16-byte vectors of channels", heuristics.fits_channels,
            heuristics.CHANNELS,
        ),
        rungs.cuda(
            "integer", side, "planes, by an integer: 16-byte vectors of several rows",
            heuristics.fits_integer, heuristics.INTEGER,
        ),
    )  # fmt: skip


RUNGS, RUNGS_BACKWARD = _rungs(), _rungs("_backward")
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, RUNGS_BACKWARD, __name__, heuristics.order, heuristics.bucket
)
_upsample = bind(LADDER, LADDER_BACKWARD)


def upsample_nearest2d(
    input: torch.Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> torch.Tensor:
    """Resize images by copying the nearest pixel, as torch.nn.functional.interpolate with mode
    "nearest".

    Args:
        input: (N, C, H, W), planes or channels last; float32, float16 and bfloat16 have GPU rungs.
        size: height and width of the result, or one number for both.
        scale_factor: instead of size, the factor of height and width; the positions of outputs are
            then computed from it instead of the quotient of the sizes.

    Returns:
        A tensor of the new size, in the memory format of input. Its gradient adds up the outputs of
        each pixel in a fixed order.

    Raises:
        TypeError: input is not floating point, or a size or factor is not a number.
        ValueError: input has other dimensions, size and scale_factor are both given or neither is,
            or a size is less than 1.
    """
    x, back = as_images("input", autocast.float32_on_cuda(input), 4)
    out_size, given = sizes(input, size, scale_factor)
    hw = list(x.shape[-3:-1])
    inverse = [1 / float(f) for f in given] if given else [0.0, 0.0]
    return back(_upsample(x, hw, out_size, bool(given), *inverse))
