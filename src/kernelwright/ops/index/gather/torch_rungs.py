"""gather and scatter_add in PyTorch: computed positions, sums in float32; and PyTorch's own."""

import torch


def manual(x, index, n):
    """Every element by its three coordinates; a negative index is an error, like one too large."""
    lead, columns = index.shape[:-2].numel(), index.shape[-1]
    of = torch.where(index < 0, n, index).reshape(lead, index.shape[-2], columns)
    a = torch.arange(lead, device=x.device)[:, None, None]
    c = torch.arange(columns, device=x.device)
    return x.reshape(lead, n, columns)[a, of.long(), c].reshape(index.shape)


def native(x, index, n):
    return torch.gather(x, -2, index)


def _zeros(gy, n, dtype):
    return gy.new_zeros((*gy.shape[:-2], n, gy.shape[-1]), dtype=dtype)


def manual_backward(gy, index, n):
    """In float32, because in 16 bits a sum of many small numbers stops growing."""
    return manual_add(_zeros(gy, n, gy.dtype), index, gy)


def native_backward(gy, index, n):
    return _zeros(gy, n, gy.dtype).scatter_add(-2, index, gy)


def manual_add(x, index, src):
    wide = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else x.dtype
    return x.to(wide).scatter_add(-2, index, src.to(wide)).to(x.dtype)


def native_add(x, index, src):
    return torch.scatter_add(x, -2, index, src)


def manual_add_backward(gy, index):
    return manual(gy, index, gy.shape[-2])


def native_add_backward(gy, index):
    return torch.gather(gy, -2, index)
