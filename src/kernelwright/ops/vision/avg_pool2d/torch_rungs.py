"""avg_pool2d in PyTorch: the pixels of each window in a new dimension, and PyTorch's own
operator."""

import torch
import torch.nn.functional as F

from kernelwright.ops.vision.images import by_pytorch, sized

from .spec import backward_reference, outputs, reference


def manual(x, hw, kernel, stride, padding, ceil, count_padding, divisor):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y = reference(wide, hw, kernel, stride, padding, ceil, count_padding, divisor)
    return y.to(x.dtype)


def native(x, hw, kernel, stride, padding, ceil, count_padding, divisor):
    geometry = (kernel, stride, padding, ceil, count_padding)
    if x.numel() == 0:
        return x.new_empty(outputs(x, hw, *geometry, divisor)[0].shape)
    return by_pytorch(lambda t: F.avg_pool2d(t, *geometry, divisor or None), hw, x)


def manual_backward(gy, hw, kernel, stride, padding, ceil, count_padding, divisor):
    wide = gy.to(torch.promote_types(gy.dtype, torch.float32))
    geometry = (kernel, stride, padding, ceil, count_padding, divisor)
    return backward_reference(wide, hw, *geometry).to(gy.dtype)


def native_backward(gy, hw, kernel, stride, padding, ceil, count_padding, divisor):
    if gy.numel() == 0:
        return gy.new_zeros(*gy.shape[:-3], *hw, gy.shape[-1])
    geometry = (kernel, stride, padding, ceil, count_padding, divisor or None)
    return by_pytorch(
        lambda g: torch.ops.aten.avg_pool2d_backward(g, sized(g, hw), *geometry), hw, gy
    )
