"""The chain in PyTorch: line by line in float32, and PyTorch's operators one after another."""

import torch

from kernelwright.ops.elementwise import _activations as act
from kernelwright.ops.norm.layer_norm.torch_rungs import centered
from kernelwright.ops.random._keep import factor


def manual(x, residual, weight, bias, seed, p, eps, approximate):
    xw = x.to(_wide(x))
    mean, rest = centered(xw)
    rstd = torch.rsqrt(rest.square().mean(-1, keepdim=True) + eps)
    d, _, _ = _dropped(xw, residual, weight, bias, mean, rstd, seed, p)
    return act.gelu(d, approximate).to(x.dtype), mean, rstd


def native(x, residual, weight, bias, seed, p, eps, approximate):
    # on a CPU PyTorch's statistics would have the precision of the input
    wide = _wide(x)
    normal, mean, rstd = torch.native_layer_norm(
        x.to(wide), x.shape[-1:], _to(weight, wide), _to(bias, wide), eps
    )
    s = normal.to(x.dtype) + residual
    d = s if seed is None else (s * factor(x.shape, seed, p, wide)).to(x.dtype)
    return torch.nn.functional.gelu(d, approximate=approximate).to(x.dtype), mean, rstd


def manual_backward(gy, x, residual, weight, bias, mean, rstd, seed, p, approximate):
    wide = _wide(x)
    d, xhat, f = _dropped(x.to(wide), residual, weight, bias, mean, rstd, seed, p)
    gs = gy.to(wide) * act.gelu_slope(d, approximate) * f
    g = gs if weight is None else gs * weight
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True) - g.mean(-1, keepdim=True))
    gweight, gbias = _over_rows(gs * xhat, weight, x), _over_rows(gs, bias, x)
    return gx.to(x.dtype), gs.to(residual.dtype), gweight, gbias


def native_backward(gy, x, residual, weight, bias, mean, rstd, seed, p, approximate):
    wide = _wide(x)
    d, _, f = _dropped(x.to(wide), residual, weight, bias, mean, rstd, seed, p)
    gs = torch.ops.aten.gelu_backward(gy.to(wide), d, approximate=approximate) * f
    wanted = [True, weight is not None, bias is not None]
    gx, gweight, gbias = torch.ops.aten.native_layer_norm_backward(
        gs, x.to(wide), x.shape[-1:], *(_to(t, wide) for t in (mean, rstd, weight, bias)), wanted
    )
    gradients = _like(gweight, weight, x), _like(gbias, bias, x)
    return gx.to(x.dtype), gs.to(residual.dtype, copy=True), *gradients


def _dropped(xw, residual, weight, bias, mean, rstd, seed, p):
    """(d, xhat, f) of the spec, in the dtype of xw."""
    xhat = (xw - mean) * rstd
    s = xhat if weight is None else xhat * weight
    s = s if bias is None else s + bias
    f = 1.0 if seed is None else factor(xw.shape, seed, p, xw.dtype)
    return (s + residual) * f, xhat, f


def _wide(x):
    return torch.promote_types(x.dtype, torch.float32)


def _to(parameter, dtype):
    """Contiguous, because PyTorch's kernels of norms read parameters and statistics as if they
    were."""
    return None if parameter is None else parameter.to(dtype).contiguous()


def _over_rows(terms, parameter, x):
    if parameter is None:
        return x.new_empty(0)
    return terms.sum_to_size(parameter.shape).to(parameter.dtype)


def _like(gradient, parameter, x):
    return x.new_empty(0) if parameter is None else gradient.to(parameter.dtype)
