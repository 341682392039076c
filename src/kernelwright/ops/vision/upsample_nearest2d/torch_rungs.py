"""upsample_nearest2d in PyTorch: pixels selected by index, and PyTorch's own operator."""

import torch

from kernelwright.ops.vision.images import by_pytorch

from .spec import places, reference


def manual(x, hw, size, given, scale_h, scale_w):
    return reference(x, hw, size, given, scale_h, scale_w)


def native(x, hw, size, given, scale_h, scale_w):
    if x.numel() == 0:
        return x.new_empty(*x.shape[:-3], *size, x.shape[-1])
    factors = (1 / scale_h, 1 / scale_w) if given else (None, None)
    return by_pytorch(lambda t: torch.ops.aten.upsample_nearest2d(t, size, *factors), size, x)


def manual_backward(gy, hw, size, given, scale_h, scale_w):
    """Each output added to the pixel that it copies, rows first: atomics on a GPU."""
    wide = gy.to(torch.promote_types(gy.dtype, torch.float32))
    for dim, source, of, said in ((-3, hw[0], size[0], scale_h), (-2, hw[1], size[1], scale_w)):
        at = places(source, of, given, said, gy.device)
        shape = list(wide.shape)
        shape[dim] = source
        wide = torch.index_add(wide.new_zeros(shape), dim, at, wide)
    return wide.to(gy.dtype)


def native_backward(gy, hw, size, given, scale_h, scale_w):
    if gy.numel() == 0:
        return gy.new_zeros(*gy.shape[:-3], *hw, gy.shape[-1])
    factors = (1 / scale_h, 1 / scale_w) if given else (None, None)

    def backward(g):
        shape = [*g.shape[:2], *hw]
        return torch.ops.aten.upsample_nearest2d_backward(g, size, shape, *factors)

    return by_pytorch(backward, hw, gy)
