"""interpolate: images in another size, bilinear, or nearest by upsample_nearest2d."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernelwright.contract import Ladder, Rung, autocast, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.vision.images import as_images
from kernelwright.ops.vision.sizes import sizes
from kernelwright.ops.vision.upsample_nearest2d import upsample_nearest2d

from . import heuristics, spec


def _rungs(side: str = "") -> tuple[Rung, ...]:
    in_columns = heuristics.fits_columns_backward if side else heuristics.fits_columns
    return (
        # PyTorch adds gradients by atomics on a GPU
        *(
            replace(rung, deterministic=not side)
            for rung in rungs.pytorch(side, manual="means along columns, then rows", compiled=None)
        ),
        rungs.cuda("naive", side, "a pixel per thread", heuristics.fits, heuristics.THREADS),
        rungs.cuda("columns", side, "planes, rows share a column", in_columns, heuristics.COLUMNS),
        rungs.cuda(
            "channels", side, "16-byte vectors of channels", heuristics.fits_channels,
            heuristics.CHANNELS,
        ),
    )  # fmt: skip


RUNGS, RUNGS_BACKWARD = _rungs(), _rungs("_backward")
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, RUNGS_BACKWARD, __name__, heuristics.order, heuristics.bucket
)
_interpolate = bind(LADDER, LADDER_BACKWARD)


def interpolate(
    input: torch.Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """Resize images, as torch.nn.functional.interpolate.

    Args:
        input: (N, C, H, W), planes or channels last; float32, float16 and bfloat16 have GPU rungs.
        size: height and width of the result, or one number for both.
        scale_factor: instead of size, the factor of height and width.
        mode: "nearest" or "bilinear".
        align_corners: for mode "bilinear", whether the centers of the corner pixels, and not the
            corners of the images, are aligned.
        recompute_scale_factor: whether the positions of outputs are computed from the quotient of
            the sizes instead of scale_factor.
        antialias: must be False.

    Returns:
        A tensor of the new size, in the memory format of input. Its gradient is summed in a fixed
        order.

    Raises:
        TypeError: input is not floating point, or a size or factor is not a number.
        ValueError: size and scale_factor are both given or neither is, a size is less than 1, or
            align_corners is given with mode "nearest".
        NotImplementedError: input has other dimensions, or another mode or antialias is requested.
    """
    if isinstance(input, torch.Tensor) and input.ndim != 4:
        raise NotImplementedError(f"input: has {input.ndim} dimensions, should have 4")
    if mode not in ("nearest", "bilinear"):
        raise NotImplementedError(f"mode: {mode!r} is not implemented; use torch.nn.functional")
    if antialias:
        raise NotImplementedError("antialias: is not implemented; use torch.nn.functional")
    if mode == "nearest" and align_corners is not None:
        raise ValueError("align_corners: must not be given with mode 'nearest'")
    if recompute_scale_factor and scale_factor is None:
        raise ValueError("recompute_scale_factor: needs scale_factor")
    if recompute_scale_factor:
        size, scale_factor = sizes(input, None, scale_factor)[0], None
    if mode == "nearest":
        return upsample_nearest2d(input, size, scale_factor)
    x, back = as_images("input", autocast.float32_on_cuda(input), 4)
    out_size, given = sizes(input, size, scale_factor)
    inverse = [1 / f for f in given] if given else [0.0, 0.0]
    return back(_resized(x, out_size, bool(align_corners), bool(given), inverse))


def _resized(x, size: list[int], corners: bool, given: bool, inverse: list[float]) -> torch.Tensor:
    """Images (*, H, W, C) in another size. A dimension that keeps its size is not interpolated:
    pixels would count for others with a weight of 0, which is NaN times an infinity."""
    height, width = x.shape[-3:-1]
    if [height, width] == size:
        return x.clone()
    if height == size[0]:  # each row is an image
        rows = _interpolate(x.unsqueeze(-3), [1, width], [1, size[1]], corners, given, *inverse)
        return rows.squeeze(-3)
    if width == size[1]:  # columns are channels
        columns = x.flatten(-2).unsqueeze(-2)
        y = _interpolate(columns, [height, 1], [size[0], 1], corners, given, *inverse)
        return y.squeeze(-2).unflatten(-1, (width, x.shape[-1]))
    return _interpolate(x, [height, width], size, corners, given, *inverse)
