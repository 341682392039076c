"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, log2, other_dtype

MOST = 65_536  # boxes whose words fit a block's shared memory, and N * N / 8 bytes of workspace
BLOCK = 1024  # boxes that a single block can process

NAIVE = ({"block": 256},)
SINGLE = ({},)
BITMASK = ({"block": 1024, "columns": 4}, {"block": 512, "columns": 2})


def fits(gpu, boxes, scores, iou_threshold):
    if boxes.shape[0] > MOST:
        return f"boxes: has more than {MOST} rows"
    return other_dtype({"boxes": boxes, "scores": scores}, of="boxes")


def fits_block(gpu, boxes, scores, iou_threshold):
    if boxes.shape[0] > BLOCK:
        return f"boxes: has more than {BLOCK} rows"
    return fits(gpu, boxes, scores, iou_threshold)


def order(gpu, **specs):
    """One block is slower from a few hundred boxes on."""
    return ("cuda_bitmask",)


def bucket(boxes, scores, iou_threshold):
    """Key of a call in the tuned table: dtype and number of boxes."""
    return f"{kind(boxes.dtype)}/{log2(boxes.shape[0])}"
