"""softmax in PyTorch: the formula line by line, and PyTorch's own operator."""

import torch


def manual(x):
    """A kernel a line: each writes its result to memory, and the next one reads it."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y = wide * wide
    return y.to(x.dtype)


def native(x):
    return torch.square(x)


def manual_backward(gy, x):
    dtype = torch.promote_types(x.dtype, torch.float32)
    gx = 2 * x.to(dtype) * gy.to(dtype)
    return gx.to(x.dtype)


def native_backward(gy, x):
    return gy * (2 * x)
