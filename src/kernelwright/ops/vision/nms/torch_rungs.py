"""nms in PyTorch, which has no operator for it."""

import torch

from .spec import listed, overlaps, ranked

GROUP = 1024  # boxes that are decided together


def manual(boxes, scores, iou_threshold):
    """All overlaps at once. Whether a box is kept depends only on earlier boxes, so each iteration
    decides at least one more."""
    order = ranked(scores)
    boxes = _wide(boxes)[order]
    return listed(order, _fixed_point(torch.triu(overlaps(boxes, boxes) > iou_threshold, 1)))


def native(boxes, scores, iou_threshold):
    """Groups in order: the boxes of one group are decided, then later boxes are compared with those
    kept."""
    order = ranked(scores)
    boxes, kept = _wide(boxes)[order], torch.ones_like(order, dtype=torch.bool)
    for start in range(0, len(boxes), GROUP):
        stop = start + GROUP
        group, alive = boxes[start:stop], kept[start:stop]
        within = torch.triu(overlaps(group, group) > iou_threshold, 1)
        kept[start:stop] = _fixed_point(within & alive[:, None] & alive) & alive
        chosen = group[kept[start:stop]]
        for first in range(stop, len(boxes), GROUP):
            behind = boxes[first : first + GROUP]
            kept[first : first + GROUP] &= ~(overlaps(chosen, behind) > iou_threshold).any(0)
    return listed(order, kept)


def _wide(boxes):
    return boxes.to(torch.promote_types(boxes.dtype, torch.float32))


def _fixed_point(suppresses):
    """Which boxes are kept, if row i of a strictly upper triangle marks the boxes that box i
    suppresses."""
    kept = torch.ones(len(suppresses), dtype=torch.bool, device=suppresses.device)
    while True:
        following = ~(suppresses & kept[:, None]).any(0)
        if torch.equal(following, kept):
            return kept
        kept = following
