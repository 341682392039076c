"""interpolate in PyTorch: means along columns and then rows, and PyTorch's own operator."""

import torch

from kernelwright.ops.vision.images import by_pytorch

from .spec import backward_of, interpolated, keeps


def manual(x, hw, size, corners, given, scale_h, scale_w):
    wide = torch.promote_types(x.dtype, torch.float32)
    args = (hw, size, corners, given, scale_h, scale_w, wide)
    return interpolated(x.to(wide), *args).to(x.dtype)


def native(x, hw, size, corners, given, scale_h, scale_w):
    if x.numel() == 0:
        return x.new_empty(*x.shape[:-3], *size, x.shape[-1])
    if keeps(hw, size):  # PyTorch's kernels differ in what a weight of 0 does
        return manual(x, hw, size, corners, given, scale_h, scale_w)
    factors = (1 / scale_h, 1 / scale_w) if given else (None, None)
    return by_pytorch(
        lambda t: torch.ops.aten.upsample_bilinear2d(t, size, corners, *factors), size, x
    )


def manual_backward(gy, hw, size, corners, given, scale_h, scale_w):
    wide = torch.promote_types(gy.dtype, torch.float32)
    args = (hw, size, corners, given, scale_h, scale_w, wide)
    return backward_of(gy.to(wide), *args).to(gy.dtype)


def native_backward(gy, hw, size, corners, given, scale_h, scale_w):
    if gy.numel() == 0:
        return gy.new_zeros(*gy.shape[:-3], *hw, gy.shape[-1])
    if keeps(hw, size):
        return manual_backward(gy, hw, size, corners, given, scale_h, scale_w)
    factors = (1 / scale_h, 1 / scale_w) if given else (None, None)

    def backward(g):
        shape = [*g.shape[:2], *hw]
        return torch.ops.aten.upsample_bilinear2d_backward(g, size, shape, corners, *factors)

    return by_pytorch(backward, hw, gy)
