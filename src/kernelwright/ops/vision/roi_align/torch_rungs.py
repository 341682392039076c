"""roi_align in PyTorch, which has no operator for it."""

import torch

from .spec import points, reference


def manual(x, rois, size, scale, sampling, aligned):
    """One point of all bins after another, four selections for each."""
    return _wide(reference, x, rois, size, scale, sampling, aligned)


def native(x, rois, size, scale, sampling, aligned):
    """A few regions at a time: their rows, then the columns of these, for all points at once."""
    return _wide(_by_rows, x, rois, size, scale, sampling, aligned)


def _wide(function, x, rois, *rest):
    wide = torch.promote_types(x.dtype, torch.float32)
    return function(x.to(wide), rois.to(wide), *rest).to(x.dtype)


def _by_rows(x, rois, size, scale, sampling, aligned):
    parts = [x.new_zeros(0, x.shape[1], *size, x.shape[4])]
    for roi in rois:
        image = x[int(roi[0])]
        for axis in (0, 1):
            first, second, t, weight, count = points(
                roi[None], axis, x.shape[2 + axis], size[axis], scale, sampling, aligned
            )
            shape = (1, -1, 1, 1) if axis == 0 else (1, 1, -1, 1)
            t, weight = t.view(shape), weight.view(shape)
            low, high = (image.index_select(1 + axis, i.flatten()) for i in (first, second))
            point = torch.where(weight != 0, (1 - t) * low + t * high, 0.0)
            image = point.unflatten(1 + axis, (size[axis], -1)).sum(2 + axis) / count.clamp(min=1)
        parts.append(image[None])
    return torch.cat(parts)
