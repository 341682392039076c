"""rms_norm in PyTorch: the formula line by line, and PyTorch's own operator."""

import torch


def manual(x, weight, eps):
    """Seven kernels over x."""
    xw = x.to(torch.promote_types(x.dtype, torch.float32))
    rstd = torch.rsqrt(xw.square().mean(-1, keepdim=True) + eps)
    y = xw * rstd
    if weight is not None:
        y = y * weight
    return y.to(x.dtype), rstd


def native(x, weight, eps):
    # PyTorch's kernel wants one dtype: like F.rms_norm, a wider weight widens the input
    wide = x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    weight = weight if weight is None else weight.to(wide)
    y, rstd = torch.ops.aten._fused_rms_norm(x.to(wide), x.shape[-1:], weight, eps)
    return y.to(x.dtype), rstd


def manual_backward(gy, x, weight, rstd):
    wide = torch.promote_types(x.dtype, torch.float32)
    gw = gy.to(wide)
    xhat = x.to(wide) * rstd
    if weight is None:
        gweight = x.new_empty(0)
        g = gw
    else:
        gweight = (gw * xhat).sum_to_size(weight.shape).to(weight.dtype)
        g = gw * weight
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return gx.to(x.dtype), gweight


def native_backward(gy, x, weight, rstd):
    if not x.is_cuda:  # PyTorch has the backward's kernel for GPUs only
        return manual_backward(gy, x, weight, rstd)
    wide = x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    gx, gweight = torch.ops.aten._fused_rms_norm_backward(
        gy.to(wide),
        x.to(wide),
        x.shape[-1:],
        rstd,
        weight if weight is None else weight.to(wide),
        [True, weight is not None],
    )
    return gx.to(x.dtype), x.new_empty(0) if weight is None else gweight.to(weight.dtype)
