"""rope in PyTorch, which has no operator for it: the formula, and a version with fewer kernels."""

import torch

from .spec import angle_tables, turned


def manual(q, k, cos, sin, positions, base, rotary_dim, interleaved):
    """One kernel per operator: four products, two sums, two joins, two conversions each for q and
    k."""
    cos, sin = _wide(cos, sin, positions, base, rotary_dim, q.dtype)
    return tuple(_manual(x, cos, sin, rotary_dim, interleaved) for x in (q, k))


def manual_backward(gyq, gyk, cos, sin, positions, base, rotary_dim, interleaved):
    cos, sin = _wide(cos, sin, positions, base, rotary_dim, gyq.dtype)
    return tuple(_manual(g, cos, -sin, rotary_dim, interleaved) for g in (gyq, gyk))


def _manual(x, cos, sin, rotary_dim, interleaved):
    return turned(x.to(cos.dtype), cos, sin, rotary_dim, interleaved).to(x.dtype)


def native(q, k, cos, sin, positions, base, rotary_dim, interleaved):
    cos, sin = _wide(cos, sin, positions, base, rotary_dim, q.dtype)
    return tuple(_native(x, cos, sin, rotary_dim, interleaved) for x in (q, k))


def native_backward(gyq, gyk, cos, sin, positions, base, rotary_dim, interleaved):
    cos, sin = _wide(cos, sin, positions, base, rotary_dim, gyq.dtype)
    return tuple(_native(g, cos, -sin, rotary_dim, interleaved) for g in (gyq, gyk))


def _native(x, cos, sin, rotary_dim, interleaved):
    """Writes into halves of the result: no joins. addcmul computes a product and a sum in one
    kernel."""
    y = torch.empty_like(x)
    pair = slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)
    half = slice(0, rotary_dim // 2), slice(rotary_dim // 2, rotary_dim)
    first, second = pair if interleaved else half
    a, b = x[..., first].to(cos.dtype), x[..., second].to(cos.dtype)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    y[..., first] = torch.addcmul(a * cos, b, sin, value=-1)
    y[..., second] = torch.addcmul(b * cos, a, sin)
    y[..., rotary_dim:] = x[..., rotary_dim:]
    return y


def _wide(cos, sin, positions, base, rotary_dim, dtype):
    """Tables in float32, or in float64 if q and k are float64."""
    wide = torch.promote_types(dtype, torch.float32)
    cos, sin = angle_tables(cos, sin, positions, base, rotary_dim)
    return cos.to(wide), sin.to(wide)
