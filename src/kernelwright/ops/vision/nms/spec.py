"""nms: the mathematics. Boxes (x1, y1, x2, y2) are processed in descending order of their scores,
equal ones in the order of the input. A box is kept unless its overlap with an earlier box that is
kept,

    intersection / (area + area - intersection),

is greater than the threshold. Widths and heights of intersections are at least 0; areas are not
clamped; NaN is not greater. A score of NaN comes before every number.

`keep` contains the indices of the boxes that are kept, in this order, and -1 after `count` of them.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor

# The shape of a case is that of the comparisons, boxes by boxes: (shape, threshold and scores)
SHAPES = (
    ((1, 1), {}),
    ((7, 7), {}),
    ((64, 64), {"threshold": 0.3}),
    ((65, 65), {"scores": "equal"}),
    ((200, 200), {"scores": "ties"}),
    ((200, 200), {"apart": 0.1, "threshold": 0.7}),
    ((150, 150), {"threshold": 0.0}),
    ((0, 0), {}),
    ((300, 300), {"apart": 20.0}),
)
BENCH = (
    ((10000, 10000), {"apart": 20.0}, "10,000 boxes, most of them apart"),
    ((10000, 10000), {"apart": 4.0}, "10,000 boxes, in groups"),
    ((2000, 2000), {"apart": 5.0, "threshold": 0.7}, "proposals of a level of a pyramid"),
    ((4000, 4000), {"apart": 5.0}, "boxes of an image"),
)
CASES = (
    *(case(s, d, **more) for d in FLOATS for s, more in SHAPES),
    *(
        case((70, 70), d, layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((70, 70), d, values=v) for d in FLOATS for v in ("nan", "inf", "large", "constant")),
    case((70, 70), torch.float32, scores="nan"),
    *(
        case(shape, d, use="bench", label=label, **more)
        for shape, more, label in BENCH
        for d in (torch.float32, torch.float16)
    ),
    case((2**16, 2**16), torch.float32, use="big", apart=30.0),
)  # fmt: skip


def overlaps(a, b):
    """Intersection over union of each box of a (n, 4) with each of b (m, 4)."""
    a, b = a[:, None], b[None]
    left_top, right_bottom = torch.fmax(a[..., :2], b[..., :2]), torch.fmin(a[..., 2:], b[..., 2:])
    # fmax returns the number if one operand is NaN, as a comparison on a GPU does
    shared = torch.fmax(right_bottom - left_top, torch.zeros_like(left_top)).prod(-1)
    areas = [(t[..., 2] - t[..., 0]) * (t[..., 3] - t[..., 1]) for t in (a, b)]
    return shared / (areas[0] + areas[1] - shared)


def ranked(scores):
    return scores.argsort(descending=True, stable=True)


def listed(order, kept):
    """(keep, count) from the boxes in order, and which of them are kept."""
    keep, (places,) = torch.full_like(order, -1), kept.nonzero(as_tuple=True)
    keep[: len(places)] = order[places]
    return keep, torch.tensor([len(places)], device=order.device)


def reference(boxes, scores, iou_threshold):
    """One box after another."""
    order = ranked(scores)
    boxes, kept = boxes[order], torch.ones_like(order, dtype=torch.bool)
    for i in range(len(boxes)):
        (overlap,) = overlaps(boxes[i : i + 1], boxes[i + 1 :])
        kept[i + 1 :] &= ~(kept[i] & (overlap > iou_threshold))
    return listed(order, kept)


def inputs(c, device):
    boxes = tensor(replace(c, shape=(c.shape[0], 4)), "boxes", device)
    scores = tensor(c, "scores", device, shape=(c.shape[0],))
    if device != "meta" and c.layout != "expanded":
        boxes[:, 2:].abs_()
        boxes[:, :2].mul_(c.param("apart", 1.0))
        boxes[:, 2:].add_(boxes[:, :2])
    kind = c.param("scores", "random")
    if device != "meta" and kind != "random":
        if kind == "nan":
            at = torch.rand(len(scores), generator=generator(c.seed + 3, device), device=device)
            scores[at < 0.1] = float("nan")
        elif kind == "ties":
            scores.round_()
        else:
            scores.fill_(0.25)
    return {"boxes": boxes, "scores": scores, "iou_threshold": c.param("threshold", 0.5)}


def outputs(boxes, scores, iou_threshold):
    n = boxes.shape[0]
    return TensorSpec.contiguous((n,), torch.int64), TensorSpec.contiguous((1,), torch.int64)


def cost(boxes, scores, iou_threshold):
    n = boxes.shape[0]
    return Cost((boxes.nbytes + scores.nbytes,), (8 * n + 8,), flops=n * n * 8)


FORWARD = Operator(
    name="nms",
    schema="(Tensor boxes, Tensor scores, float iou_threshold) -> (Tensor keep, Tensor count)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    source="torchvision.ops.nms",
)
