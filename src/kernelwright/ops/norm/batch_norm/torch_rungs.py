"""batch_norm in PyTorch: the formulas line by line, and PyTorch's own operators."""

import torch

from . import spec

aten = torch.ops.aten


def manual(x, weight, bias, eps, channels_last=False):
    y, *statistics = spec.batch_norm(x.to(_wide(x)), weight, bias, eps, channels_last)
    return y.to(x.dtype), *statistics


def manual_backward(gy, x, weight, bias, mean, rstd, channels_last=False):
    gy, wide = gy.to(_wide(x)), x.to(_wide(x))
    gx, *sums = spec.batch_norm_backward(gy, wide, weight, bias, mean, rstd, channels_last)
    return gx.to(x.dtype), *(_like(g, p, x) for g, p in zip(sums, (weight, bias), strict=True))


def manual_inference(x, weight, bias, mean, var, eps, channels_last=False):
    given = x.to(_wide(x)), weight, bias, mean, var, eps, channels_last
    return spec.batch_norm_inference(*given).to(x.dtype)


def manual_inference_backward(gy, x, weight, bias, mean, var, eps, channels_last=False):
    given = gy.to(_wide(x)), x.to(_wide(x)), weight, bias, mean, var, eps, channels_last
    gx, *sums = spec.batch_norm_inference_backward(*given)
    return gx.to(x.dtype), *(_like(g, p, x) for g, p in zip(sums, (weight, bias), strict=True))


def native(x, weight, bias, eps, channels_last=False):
    n = x.numel() // max(spec.channels_of(x, channels_last), 1)
    if n < 2:  # PyTorch computes no statistics of 0 or 1 elements
        return manual(x, weight, bias, eps, channels_last)
    # the running variance of this batch alone: from rstd, a small one would cancel against eps
    var = torch.zeros(spec.channels_of(x, channels_last), dtype=_wide(x), device=x.device)
    y, mean, rstd = aten.native_batch_norm(
        *_given(x, weight, bias, channels_last), torch.zeros_like(var), var, True, 1.0, eps
    )
    return _back(y, x, channels_last), mean, rstd, var


def native_backward(gy, x, weight, bias, mean, rstd, channels_last=False):
    if x.numel() == 0:
        return manual_backward(gy, x, weight, bias, mean, rstd, channels_last)
    image, scale, _ = _given(x, _scale(x, weight, channels_last), None, channels_last)
    found = aten.native_batch_norm_backward(
        _image(gy, channels_last).to(image.dtype), image, scale, None, None, mean.contiguous(),
        rstd.contiguous(), True, 0.0, [True, weight is not None, bias is not None],
    )  # fmt: skip
    return _gradients(found, x, weight, bias, channels_last)


def native_inference(x, weight, bias, mean, var, eps, channels_last=False):
    if x.numel() == 0:
        return manual_inference(x, weight, bias, mean, var, eps, channels_last)
    given = _given(x, weight, bias, channels_last)
    mean, var = (_to(t, _wide(x)) for t in (mean, var))
    y = aten.native_batch_norm(*given, mean, var, False, 0.0, eps)[0]
    return _back(y, x, channels_last)


def native_inference_backward(gy, x, weight, bias, mean, var, eps, channels_last=False):
    if x.numel() == 0:
        return manual_inference_backward(gy, x, weight, bias, mean, var, eps, channels_last)
    image, scale, _ = _given(x, _scale(x, weight, channels_last), None, channels_last)
    mean, var = (_to(t, _wide(x)) for t in (mean, var))
    unused = mean.new_empty(0)  # statistics of a batch; on a GPU PyTorch 2.11 does not take None
    found = aten.native_batch_norm_backward(
        _image(gy, channels_last).to(image.dtype), image, scale, mean, var, unused, unused, False,
        eps, [True, weight is not None, bias is not None],
    )  # fmt: skip
    return _gradients(found, x, weight, bias, channels_last)


def native_stats(x, channels_last=False):
    if x.numel() == 0:  # PyTorch would warn
        return spec.batch_norm_stats(x.to(_wide(x)), channels_last)
    over = (0, 1) if channels_last else (0, 2)
    var, mean = torch.var_mean(x.to(_wide(x)), over, correction=0)
    return mean, var


def native_backward_reduce(gy, x, mean, rstd, channels_last=False):
    wide = _wide(x)
    return spec.batch_norm_backward_reduce(gy.to(wide), x.to(wide), mean, rstd, channels_last)


def native_backward_elemt(gy, x, weight, mean, rstd, total, channels_last=False):
    wide = _wide(x)
    return spec.batch_norm_backward_elemt(
        gy.to(wide), x.to(wide), weight, mean, rstd, total, channels_last
    ).to(x.dtype)


def _given(x, weight, bias, channels_last):
    """x and its parameters in dtypes that PyTorch accepts: all the same, or 16-bit x with float32
    parameters on a GPU. On a CPU PyTorch's statistics of 16-bit x would only have its precision."""
    wide = _wide(x)
    if not x.is_cuda:
        x = x.to(wide)
    return _image(x, channels_last), _to(weight, wide), _to(bias, wide)


def _scale(x, weight, channels_last):
    """The weight; PyTorch's backward on a GPU needs one if there is only a bias."""
    if weight is not None:
        return weight
    return x.new_ones(spec.channels_of(x, channels_last), dtype=_wide(x))


def _image(x, channels_last):
    """(N, C, L, 1), with the channels last in memory if they are last in x. Contiguous, because
    PyTorch's backward on a CPU is wrong if the strides of the gradient differ from those of x."""
    x = x.contiguous()
    return x.unsqueeze(2).permute(0, 3, 1, 2) if channels_last else x.unsqueeze(-1)


def _back(image, x, channels_last):
    image = image.squeeze(-1)
    return (image.transpose(1, 2) if channels_last else image).contiguous().to(x.dtype)


def _gradients(found, x, weight, bias, channels_last):
    gx, gweight, gbias = found
    return _back(gx, x, channels_last), _like(gweight, weight, x), _like(gbias, bias, x)


def _to(parameter, dtype):
    """Contiguous, because PyTorch's kernels of norms read parameters and statistics as if they
    were."""
    return None if parameter is None else parameter.to(dtype).contiguous()


def _wide(x):
    return torch.promote_types(x.dtype, torch.float32)


def _like(gradient, parameter, x):
    return x.new_empty(0) if parameter is None else gradient.to(parameter.dtype)
