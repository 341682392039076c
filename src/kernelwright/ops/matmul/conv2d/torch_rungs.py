"""conv2d in PyTorch: the matrix of patches in memory, and cuDNN."""

import torch
import torch.nn.functional as F

from .spec import outputs, reference


def manual(x, weight, bias, stride, padding, dilation):
    """Writes the input elements under the filter to memory, one row per result, then multiplies."""
    (y,) = outputs(x, weight, bias, stride, padding, dilation)
    wide = torch.promote_types(x.dtype, torch.float32)
    filter = weight.shape[1:3]
    if 0 in (x.numel(), weight.numel()):
        return x.new_zeros(y.shape) + (0 if bias is None else bias)
    image = x.to(wide).permute(0, 3, 1, 2)
    patches = F.unfold(image, tuple(filter), dilation, padding, stride).mT  # k: channels first
    flat = patches @ weight.to(wide).permute(0, 3, 1, 2).flatten(1).t()
    flat = flat if bias is None else flat + bias.to(wide)
    return flat.view(y.shape).to(x.dtype)


def native(x, weight, bias, stride, padding, dilation):
    """cuDNN, which has kernels for channels last, except in float64."""
    return reference(x, weight, bias, stride, padding, dilation).contiguous()
