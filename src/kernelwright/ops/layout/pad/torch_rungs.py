"""pad in PyTorch: a fill and a copy into its box, and PyTorch's own operator."""

import torch
import torch.nn.functional as F

from .spec import amounts


def manual(x, pad, value=0.0):
    around = amounts(x.ndim, pad)
    boxes = [x.new_full([n + sum(a) for n, a in zip(x.shape, around, strict=True)], value)]
    for d, (before, _) in enumerate(around):
        boxes.append(boxes[-1].narrow(d, before, x.shape[d]))
    y = x
    for d, (before, _) in reversed(list(enumerate(around))):
        y = torch.slice_scatter(boxes[d], y, d, before, before + x.shape[d])
    return y


def native(x, pad, value=0.0):
    if not (x.is_floating_point() or x.is_complex()):
        value = int(value)
    return F.pad(x, list(pad), value=value).contiguous()
