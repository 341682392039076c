"""cat in PyTorch: one copy per tensor, and PyTorch's own operator."""

import torch

from .spec import begins


def manual(*xs):
    parts = [x for x in xs if x is not None]
    y = parts[0].new_empty(*parts[0].shape[:-1], begins(parts)[-1])
    for begin, x in zip(begins(parts), parts, strict=False):
        y = torch.slice_scatter(y, x, -1, begin, begin + x.shape[-1])
    return y


def native(*xs):
    return torch.cat([x for x in xs if x is not None], -1)
