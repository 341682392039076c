"""softmax in PyTorch: the formula line by line, and PyTorch's own operator."""

import torch


def manual(x, dim):
    """Five kernels over x, each of which reads it from memory again."""
    wide = torch.promote_types(x.dtype, torch.float32)
    shifted = x.to(wide) - x.to(wide).amax(dim, keepdim=True)
    e = torch.exp(shifted)
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def native(x, dim):
    return torch.softmax(x, dim)


def manual_backward(gy, y, dim):
    wide = torch.promote_types(y.dtype, torch.float32)
    g, p = gy.to(wide), y.to(wide)
    return (p * (g - (g * p).sum(dim, keepdim=True))).to(y.dtype)


def native_backward(gy, y, dim):
    return torch._softmax_backward_data(gy, y, dim, y.dtype)
