"""avg_pool2d: the mean of each window."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.vision.images import as_images
from kernelwright.ops.vision.windows import Pair, checked

from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(manual="the pixels of each window side by side", compiled=None),
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
    *rungs.pytorch("_backward", manual="each window's share, to rows, then columns", compiled=None),
    rungs.cuda(
        "naive", "_backward", "a pixel per thread", heuristics.fits, heuristics.THREADS
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
_avg_pool = bind(LADDER, LADDER_BACKWARD)


def avg_pool2d(
    input: torch.Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """The mean of each window, as torch.nn.functional.avg_pool2d.

    Args:
        input: (N, C, H, W) or (C, H, W), planes or channels last; float32, float16 and bfloat16
            have GPU rungs, which add in float32.
        kernel_size, stride, padding: one integer or (height, width); stride defaults to
            kernel_size.
        ceil_mode: a last window may extend past the padding, and is cut off there.
        count_include_pad: whether padding counts as pixels that are 0.
        divisor_override: divisor of the sums, instead of the number of pixels.

    Returns:
        The result, in the memory format of input. Its gradient is summed in a fixed order.

    Raises:
        TypeError: input is not of real numbers, or an argument of the window is not an integer.
        ValueError: input has other dimensions or no pixels, a padding is more than half of its
            window, no window fits, or divisor_override is 0.
    """
    x, back = as_images("input", input)
    given = (input, kernel_size, stride, padding, 1, ceil_mode)
    kernel, stride, padding, _ = checked(*given)
    if divisor_override == 0:
        raise ValueError("divisor_override: must not be 0")
    geometry = (list(x.shape[-3:-1]), kernel, stride, padding, bool(ceil_mode))
    return back(_avg_pool(x, *geometry, bool(count_include_pad), divisor_override or 0))
