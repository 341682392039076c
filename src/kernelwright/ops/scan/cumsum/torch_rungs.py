"""cumsum and cumprod in PyTorch: steps of doubling distance, and PyTorch's own operators."""

import torch

from .spec import running, segmented, shifted, sums


def _wide(x):
    return torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else x.dtype


def _doubling(x, begins, dim):
    """log2 n kernels, each over the whole tensor."""
    return running(torch.add, x, dim) if begins is None else segmented(x, begins, dim)


def _own(x, begins, dim):
    """PyTorch has no sums over segments."""
    return torch.cumsum(x, dim) if begins is None else segmented(x, begins, dim).contiguous()


def manual(x, starts, dim, exclusive=False, reverse=False):
    return sums(x.to(_wide(x)), starts, dim, exclusive, reverse, _doubling).to(x.dtype).contiguous()


def native(x, starts, dim, exclusive=False, reverse=False):
    if starts is None:
        return _cast(sums(x, None, dim, exclusive, reverse, _own), x)
    return _cast(sums(x.to(_wide(x)), starts, dim, exclusive, reverse, _own), x)


def _cast(y, x):
    """PyTorch's sum of integers is int64; here it has the input's dtype."""
    return y.to(x.dtype)


def manual_backward(gy, starts, dim, exclusive=False, reverse=False):
    return manual(gy, starts, dim, exclusive, not reverse)


def native_backward(gy, starts, dim, exclusive=False, reverse=False):
    return native(gy, starts, dim, exclusive, not reverse)


def manual_product(x, dim):
    if x.ndim == 0:
        return x + 0
    return running(torch.mul, x.to(_wide(x)), dim).to(x.dtype).contiguous()


def native_product(x, dim):
    return torch.cumprod(x, dim, dtype=x.dtype)


def manual_product_backward(gy, x, y, dim):
    """r_i = gy_i + x_{i+1} r_{i+1} by doubling: a step composes functions scale r + shift."""
    if x.ndim == 0:
        return gy + 0
    wide = _wide(gy)
    scale = shifted(x.to(wide).flip(dim), dim, 0.0).movedim(dim, -1)
    shift, step = gy.to(wide).flip(dim).movedim(dim, -1), 1
    while step < scale.shape[-1]:
        later = scale[..., step:]
        shift = torch.cat((shift[..., :step], shift[..., step:] + later * shift[..., :-step]), -1)
        scale = torch.cat((scale[..., :step], later * scale[..., :-step]), -1)
        step *= 2
    return (shifted(y.to(wide), dim, 1.0) * shift.movedim(-1, dim).flip(dim)).to(gy.dtype)


def native_product_backward(gy, x, y, dim):
    """The formula: PyTorch's own backward synchronizes to test x for zeros, which a CUDA graph
    cannot capture."""
    return manual_product_backward(gy, x, y, dim)
