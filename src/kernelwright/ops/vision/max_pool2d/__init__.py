"""max_pool2d: the greatest pixel of each window."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Ladder, rungs
from kernelwright.dispatch import bind, recorded
from kernelwright.ops.vision.images import as_images
from kernelwright.ops.vision.windows import Pair, checked

from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(manual="all pixels of each window compared", compiled=None),
    rungs.cuda("naive", "", "a window per thread", heuristics.fits, heuristics.THREADS),
    rungs.cuda(
        "rows", "", "windows in registers, of pixels or 16-byte vectors", heuristics.fits_rows,
        heuristics.ROWS,
    ),
    rungs.cuda(
        "columns", "", "planes: windows side by side, a line of pixels in one load",
        heuristics.fits_columns, heuristics.COLUMNS,
    ),
)  # fmt: skip
RUNGS_BACKWARD = (
    # PyTorch adds by atomics on a GPU
    *(
        replace(rung, deterministic=False)
        for rung in rungs.pytorch(
            "_backward", manual="a sum by the windows' choices", compiled=None
        )
    ),
    rungs.cuda(
        "naive", "_backward", "a pixel per thread", heuristics.fits_backward, heuristics.THREADS
    ),
    rungs.cuda(
        "blocks", "_backward", "blocks of pixels, windows known", heuristics.fits_blocks,
        heuristics.BLOCKS,
    ),
    rungs.cuda(
        "columns", "_backward", "planes: blocks side by side, lines stored as vectors",
        heuristics.fits_columns_backward, heuristics.BLOCKS,
    ),
)  # fmt: skip
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, RUNGS_BACKWARD, __name__, heuristics.order_backward, heuristics.bucket
)
_max_pool = bind(LADDER, LADDER_BACKWARD)


def max_pool2d(
    input: torch.Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The greatest pixel of each window, as torch.nn.functional.max_pool2d.

    Args:
        input: (N, C, H, W) or (C, H, W), planes or channels last; float32, float16 and bfloat16
            have GPU rungs.
        kernel_size, stride, padding, dilation: one integer or (height, width); stride defaults
            to kernel_size.
        ceil_mode: a last window may extend past the padding.
        return_indices: whether the pixels' indices are returned too.

    Returns:
        The result, in the memory format of input, or (result, indices), where an index is
        h * W + w, int64. NaN is greater than any number; of equal pixels the first is selected. The
        gradient of a pixel is summed over the windows that selected it, in a fixed order.

    Raises:
        TypeError: input is not of real numbers, or an argument of the window is not an integer.
        ValueError: input has other dimensions or no pixels, a padding is more than half of its
            window, or no window fits.
    """
    x, back = as_images("input", input)
    geometry = checked(input, kernel_size, stride, padding, dilation, ceil_mode)
    hw = list(x.shape[-3:-1])
    y, at = _max_pool(x, hw, *geometry, bool(ceil_mode), return_indices or recorded(input))
    if not return_indices:
        return back(y)
    return back(y), back(spec.places(at.long(), hw, *geometry))
