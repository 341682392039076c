"""max_pool2d in PyTorch: a comparison of all pixels of a window, and PyTorch's own operator."""

import torch
import torch.nn.functional as F

from kernelwright.ops.vision.images import channels_last_strides, from_nchw, nchw

from .spec import backward_reference, index_dtype, outputs, places, reference


def manual(x, hw, kernel, stride, padding, dilation, ceil, keep):
    return reference(x, hw, kernel, stride, padding, dilation, ceil, keep)


def native(x, hw, kernel, stride, padding, dilation, ceil, keep):
    geometry = (kernel, stride, padding, dilation, ceil)
    if x.numel() == 0:
        specs = outputs(x, hw, *geometry, keep)
        return tuple(torch.empty(s.shape, dtype=s.dtype, device=x.device) for s in specs)
    if not keep:
        y = F.max_pool2d(nchw(x), *geometry)
        return from_nchw(y, x), torch.empty(0, dtype=index_dtype(kernel), device=x.device)
    y, place = F.max_pool2d(nchw(x), *geometry, return_indices=True)
    return from_nchw(y, x), numbers(from_nchw(place, x), hw, kernel, stride, padding, dilation)


def numbers(place, hw, kernel, stride, padding, dilation):
    """Numbers of pixels in their windows, from those in the images."""
    i, j = place // hw[1], place % hw[1]
    for of, dim, axis in ((i, -3, 0), (j, -2, 1)):
        window = torch.arange(place.shape[dim], device=place.device) * stride[axis] - padding[axis]
        of.sub_(window.view(-1, *(1,) * (-1 - dim))).floor_divide_(dilation[axis])
    return (i * kernel[1] + j).to(index_dtype(kernel))


def manual_backward(gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    wide = gy.to(torch.promote_types(gy.dtype, torch.float32))
    gx = backward_reference(wide, at, hw, kernel, stride, padding, dilation, ceil, keep)
    return gx.to(gy.dtype)


def native_backward(gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    if gy.numel() == 0:
        return gy.new_zeros(*gy.shape[:-3], *hw, gy.shape[-1])
    g = nchw(gy)
    place = nchw(places(at.long(), hw, kernel, stride, padding, dilation))
    x = g.new_empty_strided((*g.shape[:2], *hw), channels_last_strides(g.shape[1], hw))
    gx = torch.ops.aten.max_pool2d_with_indices_backward(
        g, x, kernel, stride, padding, dilation, ceil, place
    )
    return from_nchw(gx, gy)
