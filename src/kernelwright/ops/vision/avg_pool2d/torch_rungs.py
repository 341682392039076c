"""avg_pool2d in PyTorch: the pixels of each window side by side, and PyTorch's own operator."""

import torch
import torch.nn.functional as F

from kernelwright.ops.vision.images import channels_last_strides, from_nchw, nchw

from .spec import backward_reference, outputs, reference


def manual(x, hw, kernel, stride, padding, ceil, count_padding, divisor):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y = reference(wide, hw, kernel, stride, padding, ceil, count_padding, divisor)
    return y.to(x.dtype)


def native(x, hw, kernel, stride, padding, ceil, count_padding, divisor):
    geometry = (kernel, stride, padding, ceil, count_padding)
    if x.numel() == 0:
        return x.new_empty(outputs(x, hw, *geometry, divisor)[0].shape)
    return from_nchw(F.avg_pool2d(nchw(x), *geometry, divisor or None), x)


def manual_backward(gy, hw, kernel, stride, padding, ceil, count_padding, divisor):
    wide = gy.to(torch.promote_types(gy.dtype, torch.float32))
    geometry = (kernel, stride, padding, ceil, count_padding, divisor)
    return backward_reference(wide, hw, *geometry).to(gy.dtype)


def native_backward(gy, hw, kernel, stride, padding, ceil, count_padding, divisor):
    if gy.numel() == 0:
        return gy.new_zeros(*gy.shape[:-3], *hw, gy.shape[-1])
    g = nchw(gy)
    x = g.new_empty_strided((*g.shape[:2], *hw), channels_last_strides(g.shape[1], hw))
    geometry = (kernel, stride, padding, ceil, count_padding)
    gx = torch.ops.aten.avg_pool2d_backward(g, x, *geometry, divisor or None)
    return from_nchw(gx, gy)
