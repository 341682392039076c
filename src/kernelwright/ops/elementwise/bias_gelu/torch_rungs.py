"""bias_gelu in PyTorch: line by line, and PyTorch's operators one after another."""

import torch

from .. import _activations as act


def manual(x, bias, approximate):
    z = _wide(x) + _wide(bias)
    return act.gelu(z, approximate).to(_kind(x, bias))


def native(x, bias, approximate):
    return torch.nn.functional.gelu(x + bias, approximate=approximate)


def manual_backward(gy, x, bias, approximate):
    gx = _wide(gy) * act.gelu_slope(_wide(x) + _wide(bias), approximate)
    return gx.to(x.dtype), gx.sum_to_size(bias.shape).to(bias.dtype)


def native_backward(gy, x, bias, approximate):
    z = x + bias
    gx = torch.ops.aten.gelu_backward(gy.to(z.dtype), z, approximate=approximate)
    return gx.to(x.dtype), gx.sum_to_size(bias.shape).to(bias.dtype)


def _kind(x, bias):
    return torch.promote_types(x.dtype, bias.dtype)


def _wide(t):
    return t.to(torch.promote_types(t.dtype, torch.float32))
