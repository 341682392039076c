"""roi_align: regions of images, each in a few bins."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.vision.images import pair

from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(
        manual="one point of all bins after another",
        native="a region after another, rows and then columns",
        compiled=None,
        syncs_host=True,
    ),
    rungs.cuda("naive", "", "a result per thread", heuristics.fits, heuristics.THREADS),
    rungs.cuda(
        "shared", "", "a region's points in shared memory", heuristics.fits_shared,
        heuristics.SHARED,
    ),
)  # fmt: skip
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
_roi_align = bind(LADDER, gradient="formula", vmap="loop")


def roi_align(
    input: torch.Tensor,
    boxes: torch.Tensor | Sequence[torch.Tensor],
    output_size: int | Sequence[int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> torch.Tensor:
    """Resample regions of images to output_size bins each, as torchvision.ops.roi_align.

    Coordinates are float32, for 16-bit boxes too. Source: torchvision.

    Args:
        input: (N, C, H, W), planes or channels last; float32, float16 and bfloat16 have GPU rungs.
        boxes: (K, 5), each the index of an image, x1, y1, x2, y2, of the input's dtype; or a list
            with the boxes (L, 4) of each image.
        output_size: number of bins per region, one number or (height, width).
        spatial_scale: factor that converts coordinates to pixels.
        sampling_ratio: points per bin along each dimension; as many as pixels if not positive.
        aligned: whether coordinates refer to corners of pixels, half a pixel from their centers.

    Returns:
        (K, C, height, width), in the memory format of input. Differentiable with respect to input,
        at the cost of PyTorch's operators; boxes are constants, as in torchvision.

    Raises:
        TypeError: input or boxes are not floating point, or of different dtypes.
        ValueError: the shapes are not those above, or output_size is less than 1.
        IndexError: on a CPU, the index of an image is out of range. On a GPU this triggers a
            device-side assertion.
    """
    arguments.floating("input", input)
    if input.ndim != 4:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 4")
    rois = _listed(input, boxes)
    arguments.floating("boxes", rois)
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ValueError(f"boxes: has shape {tuple(rois.shape)}, should be (K, 5)")
    if rois.dtype != input.dtype:
        raise TypeError(f"boxes: is {rois.dtype}, should be {input.dtype} as the input")
    size = pair("output_size", output_size, 1)
    if 0 in input.shape[-2:] and len(rois):
        raise ValueError(f"input: has no pixels, its shape is {tuple(input.shape)}")
    args = (rois.detach(), size, float(spatial_scale), max(int(sampling_ratio), 0), bool(aligned))
    if input.shape[1] > 1 and input.stride(1) == 1 and not input.is_contiguous():
        y = _roi_align(input.permute(0, 2, 3, 1)[:, None], *args)
        return y[:, 0].permute(0, 3, 1, 2)
    return _roi_align(input[..., None], *args)[..., 0]


def _listed(input: torch.Tensor, boxes: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """Boxes (K, 5) from a list of boxes (L, 4) for each image.

    Raises:
        TypeError, ValueError: boxes is neither tensor nor list, or of other shapes.
    """
    if isinstance(boxes, torch.Tensor):
        return boxes
    if not isinstance(boxes, (list, tuple)):
        raise TypeError(f"boxes: must be a tensor or a list, is a {type(boxes).__name__}")
    parts = [input.new_zeros(0, 5)]
    for i, of in enumerate(boxes):
        arguments.tensor(f"boxes[{i}]", of)
        if of.ndim != 2 or of.shape[1] != 4:
            raise ValueError(f"boxes[{i}]: has shape {tuple(of.shape)}, should be (L, 4)")
        parts.append(torch.cat((torch.full_like(of[:, :1], i), of), 1))
    return torch.cat(parts)
