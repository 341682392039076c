"""gelu in PyTorch: the formula line by line, and PyTorch's own operator."""

import math

import torch


def manual(x, approximate):
    """One kernel per operator: each writes its result to memory, and the next one reads it."""
    wide = torch.promote_types(x.dtype, torch.float32)
    xw = x.to(wide)
    if approximate == "tanh":
        u = math.sqrt(2 / math.pi) * (xw + 0.044715 * (xw * xw * xw))
        y = 0.5 * xw * (1.0 + torch.tanh(u))
    else:
        y = 0.5 * xw * (1.0 + torch.erf(xw * math.sqrt(0.5)))
    return y.to(x.dtype)


def native(x, approximate):
    return torch.nn.functional.gelu(x, approximate=approximate)


def manual_backward(gy, x, approximate):
    wide = torch.promote_types(x.dtype, torch.float32)
    xw = x.to(wide)
    if approximate == "tanh":
        xx = xw * xw
        tanh = torch.tanh(math.sqrt(2 / math.pi) * (xw + 0.044715 * (xx * xw)))
        inner = math.sqrt(2 / math.pi) * (1.0 + 3 * 0.044715 * xx)
        slope = 0.5 * (1.0 + tanh) + 0.5 * xw * (1.0 - tanh * tanh) * inner
    else:
        density = torch.exp(-0.5 * xw * xw) * math.sqrt(0.5 / math.pi)
        slope = 0.5 * (1.0 + torch.erf(xw * math.sqrt(0.5))) + xw * density
    return (gy.to(wide) * slope).to(x.dtype)


def native_backward(gy, x, approximate):
    return torch.ops.aten.gelu_backward(gy, x, approximate=approximate)
