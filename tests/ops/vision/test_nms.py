"""Tests of nms: random boxes on every rung, degenerate ones, equal overlaps, arguments."""

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.vision.nms import LADDER, spec
from support.publics import DEVICE, randn

RUNGS = [r.name for r in LADDER.rungs]


def run(rung, boxes, scores, threshold):
    args = {"boxes": boxes, "scores": scores, "iou_threshold": threshold}
    keep, count = launcher(LADDER, args, rung)(*args.values())
    assert (keep[count.item() :] == -1).all()
    return keep[: count.item()].tolist()


@pytest.mark.parametrize("rung", RUNGS)
def test_random_boxes_in_chains(rung):
    """Each box overlaps the next boxes of a line, so that decisions depend on each other."""
    for n, step, threshold in ((130, 0.3, 0.5), (97, 0.05, 0.8), (33, 2.0, 0.1)):
        left = torch.arange(n, device=DEVICE) * step
        boxes = torch.stack((left, left * 0, left + 1, left * 0 + 1), 1)[torch.randperm(n)]
        scores = randn(n, seed=n)
        right, count = spec.reference(boxes.double(), scores.double(), threshold)
        assert run(rung, boxes, scores, threshold) == right[: count.item()].tolist()


@pytest.mark.parametrize("rung", RUNGS)
def test_equal_overlaps_and_boxes_without_area(rung):
    """An overlap equal to the threshold does not count, and neither does 0 / 0, which is NaN."""
    boxes = torch.tensor(
        [[0, 0, 2, 1], [0, 0, 1, 1], [5, 5, 5, 5], [5, 5, 5, 5], [2, 2, 1, 1], [9, 9, 10, 10.0]],
        device=DEVICE,
    )
    scores = torch.tensor([5, 4, 3, 2, 1, float("nan")], device=DEVICE)
    assert run(rung, boxes, scores, 0.5) == [5, 0, 1, 2, 3, 4]
    assert run(rung, boxes, scores, 0.49) == [5, 0, 2, 3, 4]


def test_order_and_ties():
    boxes = torch.tensor([[0, 0, 1, 1.0]] * 4, device=DEVICE)
    scores = torch.tensor([0.0, 1, -0.0, 1], device=DEVICE)
    assert kw.nms(boxes, scores, 0.5).tolist() == [1]
    assert kw.nms(boxes, scores, 1.0).tolist() == [1, 3, 0, 2]
    assert kw.nms(boxes[:0], scores[:0], 0.5).shape == (0,)
    assert kw.nms(boxes.double(), scores.double(), 0.5).tolist() == [1]


@pytest.mark.parametrize(
    ("boxes", "scores", "error", "words"),
    [
        (torch.ones(3, 5), torch.ones(3), ValueError, r"boxes: has shape \(3, 5\)"),
        (torch.ones(3, 4), torch.ones(2), ValueError, r"scores: has shape \(2,\), should be \(3,"),
        (torch.ones(3, 4).int(), torch.ones(3), TypeError, "boxes: must be floating point"),
        (torch.ones(3, 4), torch.ones(3).half(), TypeError, "scores: is torch.float16"),
    ],
)
def test_what_is_wrong_is_named(boxes, scores, error, words):
    with pytest.raises(error, match=words):
        kw.nms(boxes, scores, 0.5)
