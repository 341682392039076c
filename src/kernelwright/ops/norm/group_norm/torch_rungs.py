"""group_norm in PyTorch: the formula line by line, and PyTorch's own operators."""

import torch

from .spec import group_norm, group_norm_backward, normalised, ungrouped


def manual(x, weight, bias, groups, eps, channels_last=False, silu=False):
    """The formula in float32, one kernel per line."""
    y, *statistics = group_norm(x.to(_wide(x)), weight, bias, groups, eps, channels_last, silu)
    return y.to(x.dtype), *statistics


def manual_backward(gy, x, weight, bias, mean, rstd, groups, channels_last=False, silu=False):
    wide = _wide(x)
    gx, *sums = group_norm_backward(
        gy.to(wide), x.to(wide), weight, bias, mean, rstd, groups, channels_last, silu
    )
    return gx.to(x.dtype), *(_like(g, p, x) for g, p in zip(sums, (weight, bias), strict=True))


def native(x, weight, bias, groups, eps, channels_last=False, silu=False):
    if x.numel() == 0:  # PyTorch's statistics of empty input differ from the formula's
        return manual(x, weight, bias, groups, eps, channels_last, silu)
    image, wide = _image(x, channels_last), _wide(x)
    y, mean, rstd = torch.native_group_norm(
        image, _to(weight, wide), _to(bias, wide), *image.shape[:3], groups, eps
    )
    y = torch.nn.functional.silu(y) if silu else y
    return _back(y, channels_last).to(x.dtype), mean, rstd


def native_backward(gy, x, weight, bias, mean, rstd, groups, channels_last=False, silu=False):
    if x.numel() == 0:
        return manual_backward(gy, x, weight, bias, mean, rstd, groups, channels_last, silu)
    image, gradient, wide = _image(x, channels_last), _image(gy, channels_last), _wide(x)
    if silu:
        z = normalised(x.to(wide), weight, bias, mean, rstd, groups, channels_last)[1]
        z = _image(ungrouped(z, channels_last), channels_last)
        gradient = torch.ops.aten.silu_backward(gradient, z)
    # PyTorch takes the shape of the bias gradient from the weight
    scale = mean.new_ones(image.shape[1]) if weight is None else _to(weight, wide)
    gx, gweight, gbias = torch.ops.aten.native_group_norm_backward(
        gradient, image, _to(mean, wide), _to(rstd, wide), scale, *image.shape[:3], groups,
        [True, weight is not None, bias is not None],
    )  # fmt: skip
    gx = _back(gx, channels_last).to(x.dtype)
    return gx, _like(gweight, weight, x), _like(gbias, bias, x)


def _image(x, channels_last):
    """(N, C, L, 1), with the channels last in memory if they are so in x on a CPU, whose kernels
    support this. In float32, because PyTorch's statistics have the input's dtype, which is too
    coarse in 16 bits."""
    x = x.to(_wide(x))
    if not channels_last:
        return x.contiguous().unsqueeze(-1)
    image = x.contiguous().unsqueeze(2).permute(0, 3, 1, 2)
    return image.contiguous() if x.is_cuda else image


def _back(image, channels_last):
    image = image.squeeze(-1)
    return (image.transpose(1, 2) if channels_last else image).contiguous()


def _wide(x):
    return torch.promote_types(x.dtype, torch.float32)


def _to(parameter, dtype):
    """Contiguous, because PyTorch's kernels of norms read parameters and statistics as if they
    were."""
    return None if parameter is None else parameter.to(dtype).contiguous()


def _like(gradient, parameter, x):
    return x.new_empty(0) if parameter is None else gradient.to(parameter.dtype)
