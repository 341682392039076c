"""dropout in PyTorch. `F.dropout` takes no seed, so integer kernels compute the same mask."""

import torch

from .._keep import factor, kept
from .mask import pack, unpack


def native(x, seed, p):
    """Some hundred kernels over int64 words; F.dropout itself is timed as a peer."""
    wide = _wide(x)
    return (x.to(wide) * factor(x.shape, seed, p, wide)).to(x.dtype)


def native_backward(gy, seed, p):
    return native(gy, seed, p)


def native_with_mask(x, seed, p):
    mask = kept(x.shape, seed, p)
    return _masked(x, mask, p), pack(mask)


def native_with_mask_backward(gy, mask, p):
    return _masked(gy, unpack(mask, gy.shape), p)


# Between a bias and a residual: the formula in float32, rounded once, and PyTorch's operators one
# after another, each of which writes its result to memory.


def manual_bias_dropout_add(x, bias, residual, seed, p):
    wide = _wide(x)
    z = x.to(wide) if bias is None else x.to(wide) + bias.to(wide)
    z = z if seed is None else z * factor(x.shape, seed, p, wide)
    return (z + residual.to(wide)).to(x.dtype)


def native_bias_dropout_add(x, bias, residual, seed, p):
    z = x if bias is None else (x + bias).to(x.dtype)
    z = z if seed is None else native(z, seed, p)
    return (z + residual).to(x.dtype)


def manual_bias_dropout_add_backward(gy, bias, seed, p):
    g = gy.to(_wide(gy))
    g = g if seed is None else g * factor(gy.shape, seed, p, g.dtype)
    return g.to(gy.dtype, copy=True), _over_rows(g, bias)


def native_bias_dropout_add_backward(gy, bias, seed, p):
    gx = gy.clone() if seed is None else native(gy, seed, p)
    return gx, _over_rows(gx, bias)


def manual_bias_dropout_add_with_mask(x, bias, residual, seed, p):
    y = manual_bias_dropout_add(x, bias, residual, seed, p)
    return y, pack(kept(x.shape, seed, p))


def native_bias_dropout_add_with_mask(x, bias, residual, seed, p):
    mask = kept(x.shape, seed, p)
    z = x if bias is None else (x + bias).to(x.dtype)
    return (_masked(z, mask, p) + residual).to(x.dtype), pack(mask)


def manual_bias_dropout_add_with_mask_backward(gy, bias, mask, p):
    g = _masked(gy.to(_wide(gy)), unpack(mask, gy.shape), p)
    return g.to(gy.dtype), _over_rows(g, bias)


def native_bias_dropout_add_with_mask_backward(gy, bias, mask, p):
    gx = _masked(gy, unpack(mask, gy.shape), p)
    return gx, _over_rows(gx, bias)


def _masked(x, mask, p):
    scaled = mask.to(_wide(x)) * (1 / (1 - p) if p < 1 else 0.0)
    return (x.to(scaled.dtype) * scaled).to(x.dtype)


def _over_rows(terms, bias):
    if bias is None:
        return terms.new_empty(0)
    return terms.sum_to_size(bias.shape).to(bias.dtype)


def _wide(x):
    return torch.promote_types(x.dtype, torch.float32)
