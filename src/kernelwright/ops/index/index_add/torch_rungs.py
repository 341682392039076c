"""index_add in PyTorch: a product and a sum, and PyTorch's own operator."""

import torch


def manual(x, index, source, alpha=1.0):
    """In float32, because in 16 bits a sum of many small numbers stops growing."""
    wide = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else x.dtype
    return x.to(wide).index_add(0, index, alpha * source.to(wide)).to(x.dtype)


def native(x, index, source, alpha=1.0):
    if not x.is_floating_point() and not x.is_complex():
        alpha = int(alpha)
    return torch.index_add(x, 0, index, source, alpha=alpha)


def manual_backward(gy, index, alpha=1.0):
    wide = torch.promote_types(gy.dtype, torch.float32)
    return (alpha * gy.index_select(0, index).to(wide)).to(gy.dtype)


def native_backward(gy, index, alpha=1.0):
    return torch.index_select(gy, 0, index) * alpha
