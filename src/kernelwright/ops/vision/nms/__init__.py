"""nms: of boxes that overlap, the one with the greatest score."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

RUNGS = (
    *rungs.pytorch(
        manual="all overlaps, and a repetition until nothing changes",
        native="groups of 1,024 boxes in order",
        compiled=None,
        syncs_host=True,
    ),
    rungs.cuda(
        "naive", "", "one block, a box after another", heuristics.fits, heuristics.NAIVE,
        dispatchable=False,
    ),
    rungs.cuda(
        "bitmask", "", "overlaps as bits, and a last block", heuristics.fits, heuristics.BITMASK
    ),
    rungs.cuda("block", "", "one launch of one block", heuristics.fits_block, heuristics.SINGLE),
)  # fmt: skip
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
_nms = bind(LADDER, vmap="loop")


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Non-maximum suppression: select boxes such that none overlaps too much with a selected box of
    a higher score, as torchvision.ops.nms. Source: torchvision.

    Args:
        boxes: (N, 4), each x1, y1, x2, y2; float32, float16 and bfloat16 have GPU rungs, for up to
            65,536 boxes, which compute in float32.
        scores: (N,), of the same dtype.
        iou_threshold: a box is suppressed if its intersection over union with a selected box is
            greater.

    Returns:
        The indices of the selected boxes, int64, in descending order of their scores; equal scores
        are in the order of the input. On a GPU the call waits for the number of boxes.

    Raises:
        TypeError: boxes or scores are not floating point, or of different dtypes.
        ValueError: the shapes are not (N, 4) and (N,).
    """
    arguments.floating("boxes", boxes)
    arguments.floating("scores", scores)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes: has shape {tuple(boxes.shape)}, should be (N, 4)")
    if scores.shape != boxes.shape[:1]:
        raise ValueError(
            f"scores: has shape {tuple(scores.shape)}, should be {tuple(boxes.shape[:1])}"
        )
    if scores.dtype != boxes.dtype:
        raise TypeError(f"scores: is {scores.dtype}, should be {boxes.dtype} as the boxes")
    keep, count = _nms(boxes, scores, float(iou_threshold))
    return keep[: count.item()]
