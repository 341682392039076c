"""permute_copy in PyTorch: elements selected by position, and PyTorch's own operator."""

import torch

from .spec import order_of


def manual(x, dims):
    """Computes the position of each element of the result, then selects by it: 8 more bytes are
    read per element."""
    order = order_of(x.ndim, dims)
    at = torch.zeros((), dtype=torch.int64, device=x.device)
    step = 1
    for d in reversed(range(x.ndim)):
        span = torch.arange(x.shape[d], device=x.device) * step
        at = at + span.view(-1, *(1,) * (x.ndim - 1 - d))
        step *= x.shape[d]
    return x.reshape(-1)[at.permute(order).reshape(-1)].view([x.shape[d] for d in order])


def native(x, dims):
    return x.permute(order_of(x.ndim, dims)).clone(memory_format=torch.contiguous_format)
