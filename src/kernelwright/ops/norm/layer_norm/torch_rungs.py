"""The norms in PyTorch: the formulas line by line, and PyTorch's own operators."""

import torch


def manual_layer_norm(x, weight, bias, eps):
    """Thirteen kernels over x, and seven over its rows."""
    xw = x.to(_wide(x))
    mean, centred = centered(xw)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = centred * rstd
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return y.to(x.dtype), mean, rstd


def centered(xw):
    """(the mean of each row, the row without it)."""
    mean = xw.mean(-1, keepdim=True)
    rest = xw - mean
    # the rounding error of the mean, all that is left of a row of equal elements; in other rows the
    # error of this sum is as large
    error = rest.mean(-1, keepdim=True)
    noise = 1e-10 * rest.square().mean(-1, keepdim=True)
    error = torch.where(error.square() > noise, error, 0.0)
    return mean + error, rest - error


def manual_rms_norm(x, weight, eps, offset=0.0):
    """Seven kernels over x."""
    xw = x.to(_wide(x))
    rstd = torch.rsqrt(xw.square().mean(-1, keepdim=True) + eps)
    y = xw * rstd
    y = y if weight is None else y * _shifted(weight, offset)
    return y.to(x.dtype), rstd


def native_layer_norm(x, weight, bias, eps):
    # PyTorch's kernel needs a single dtype: as in F.layer_norm's promotion, a wider weight widens
    # the input. On a CPU its statistics would have the precision of the input.
    wide = _common(x, weight, bias) if x.is_cuda else _wide(x)
    y, mean, rstd = torch.native_layer_norm(
        x.to(wide), x.shape[-1:], _to(weight, wide), _to(bias, wide), eps
    )
    return y.to(x.dtype), mean, rstd


def native_rms_norm(x, weight, eps, offset=0.0):
    weight = weight if weight is None else _shifted(weight, offset)
    wide = _common(x, weight)
    y, rstd = torch.ops.aten._fused_rms_norm(x.to(wide), x.shape[-1:], _to(weight, wide), eps)
    return y.to(x.dtype), rstd


def manual_layer_norm_backward(gy, x, weight, bias, mean, rstd):
    gw = gy.to(_wide(x))
    xhat = (x.to(_wide(x)) - mean) * rstd
    g = gw if weight is None else gw * weight
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True) - g.mean(-1, keepdim=True))
    return gx.to(x.dtype), _over_rows(gw * xhat, weight, x), _over_rows(gw, bias, x)


def manual_rms_norm_backward(gy, x, weight, rstd, offset=0.0):
    gw = gy.to(_wide(x))
    xhat = x.to(_wide(x)) * rstd
    g = gw if weight is None else gw * _shifted(weight, offset)
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return gx.to(x.dtype), _over_rows(gw * xhat, weight, x)


def native_layer_norm_backward(gy, x, weight, bias, mean, rstd):
    wide = _common(x, weight, bias) if x.is_cuda else _wide(x)
    gx, gweight, gbias = torch.ops.aten.native_layer_norm_backward(
        gy.to(wide),
        x.to(wide),
        x.shape[-1:],
        mean.contiguous(),
        rstd.contiguous(),
        _to(weight, wide),
        _to(bias, wide),
        [True, weight is not None, bias is not None],
    )
    return gx.to(x.dtype), _like(gweight, weight, x), _like(gbias, bias, x)


def native_rms_norm_backward(gy, x, weight, rstd, offset=0.0):
    if not x.is_cuda:  # PyTorch's kernel for the backward exists for GPUs only
        return manual_rms_norm_backward(gy, x, weight, rstd, offset)
    shifted = weight if weight is None else _shifted(weight, offset)
    wide = _common(x, shifted)
    gx, gweight = torch.ops.aten._fused_rms_norm_backward(
        gy.to(wide),
        x.to(wide),
        x.shape[-1:],
        rstd.contiguous(),
        _to(shifted, wide),
        [True, weight is not None],
    )
    return gx.to(x.dtype), _like(gweight, weight, x)


# With a residual: the sum in its dtype, as PyTorch would store it, and the norm of this sum.


def manual_add_layer_norm(x, residual, weight, bias, eps):
    h = x + residual
    y, *statistics = manual_layer_norm(h, weight, bias, eps)
    return y, h, *statistics


def native_add_layer_norm(x, residual, weight, bias, eps):
    h = x + residual
    y, *statistics = native_layer_norm(h, weight, bias, eps)
    return y, h, *statistics


def manual_add_rms_norm(x, residual, weight, eps, offset=0.0):
    h = x + residual
    y, rstd = manual_rms_norm(h, weight, eps, offset)
    return y, h, rstd


def native_add_rms_norm(x, residual, weight, eps, offset=0.0):
    h = x + residual
    y, rstd = native_rms_norm(h, weight, eps, offset)
    return y, h, rstd


def manual_add_layer_norm_backward(gy, gh, h, *others):
    gx, *more = manual_layer_norm_backward(gy, h, *others)
    return gx if gh is None else gx + gh, *more


def native_add_layer_norm_backward(gy, gh, h, *others):
    gx, *more = native_layer_norm_backward(gy, h, *others)
    return gx if gh is None else gx + gh, *more


def manual_add_rms_norm_backward(gy, gh, h, *others):
    gx, gweight = manual_rms_norm_backward(gy, h, *others)
    return gx if gh is None else gx + gh, gweight


def native_add_rms_norm_backward(gy, gh, h, *others):
    gx, gweight = native_rms_norm_backward(gy, h, *others)
    return gx if gh is None else gx + gh, gweight


def _wide(x):
    return torch.promote_types(x.dtype, torch.float32)


def _common(x, *parameters):
    dtype = x.dtype
    for p in parameters:
        dtype = dtype if p is None else torch.promote_types(dtype, p.dtype)
    return dtype


def _to(parameter, dtype):
    """Contiguous, because PyTorch's kernels of norms read parameters and statistics as if they
    were."""
    return None if parameter is None else parameter.to(dtype).contiguous()


def _shifted(weight, offset):
    """weight + offset, in float32: in 16 bits the sum would lose precision."""
    return weight.to(_wide(weight)) + offset if offset else weight


def _over_rows(terms, parameter, x):
    if parameter is None:
        return x.new_empty(0)
    return terms.sum_to_size(parameter.shape).to(parameter.dtype)


def _like(gradient, parameter, x):
    return x.new_empty(0) if parameter is None else gradient.to(parameter.dtype)
