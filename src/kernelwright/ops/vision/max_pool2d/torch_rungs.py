"""max_pool2d in PyTorch: a comparison of all pixels of a window, and PyTorch's own operator."""

import torch
import torch.nn.functional as F

from kernelwright.ops.vision.images import by_pytorch, sized

from .spec import backward_reference, index_dtype, outputs, places, reference


def manual(x, hw, kernel, stride, padding, dilation, ceil, keep):
    return reference(x, hw, kernel, stride, padding, dilation, ceil, keep)


def native(x, hw, kernel, stride, padding, dilation, ceil, keep):
    geometry = (kernel, stride, padding, dilation, ceil)
    if x.numel() == 0:
        specs = outputs(x, hw, *geometry, keep)
        return tuple(torch.empty(s.shape, dtype=s.dtype, device=x.device) for s in specs)
    if not keep:
        y = by_pytorch(lambda t: F.max_pool2d(t, *geometry), hw, x)
        return y, torch.empty(0, dtype=index_dtype(kernel), device=x.device)
    y, place = by_pytorch(lambda t: F.max_pool2d(t, *geometry, return_indices=True), hw, x)
    return y, numbers(place, hw, kernel, stride, padding, dilation)


def numbers(place, hw, kernel, stride, padding, dilation):
    """Indices of pixels in their windows, from those in the images."""
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

    def backward(g, place):
        geometry = (kernel, stride, padding, dilation, ceil)
        return torch.ops.aten.max_pool2d_with_indices_backward(g, sized(g, hw), *geometry, place)

    place = places(at.long(), hw, kernel, stride, padding, dilation)
    return by_pytorch(backward, hw, gy, place)
