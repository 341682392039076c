"""sum in PyTorch: halving with additions of tensors, and PyTorch's own operator."""

import math

import torch

from .spec import every_dim, kept_shape, result_dtype


def manual(x, dim, to=None):
    """Adds the second half to the first until one element is left. Each halving is one kernel that
    reads the result of the previous one from memory: x is read twice and written once in total."""
    kept = [d for d in every_dim(x.ndim) if d not in dim]
    n = math.prod(x.shape[d] for d in dim)
    result = result_dtype(x, to)
    wide = torch.float32 if result in (torch.float16, torch.bfloat16) else result
    a = x.permute((*dim, *kept)).to(wide, copy=True).reshape(n, *kept_shape(x, dim))
    if n == 0:
        return a.new_zeros(a.shape[1:], dtype=result)
    while len(a) > 1:
        half = len(a) // 2
        odd = a[2 * half :]
        a = a[:half] + a[half : 2 * half]
        a[: len(odd)] += odd
    return a[0].to(result).contiguous()


def native(x, dim, to=None):
    # in torch, an empty dim means all dimensions
    return torch.sum(x, dim, dtype=to) if dim else x.to(result_dtype(x, to), copy=True)
