"""quantized_linear in PyTorch: the weight is first converted to floating-point numbers."""

import torch
import torch.nn.functional as F

from .weights import dequantized


def manual(x, packed, scales, bias, bits):
    """All in float32, without PyTorch's linear."""
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide) @ dequantized(packed, scales, bits, wide).t()
    y = y if bias is None else y + bias.to(wide)
    return y.to(x.dtype)


def native(x, packed, scales, bias, bits):
    """A weight of x's dtype is written to memory and read by cuBLAS: with few rows of x, 4 and 8
    times the bytes of the 4-bit weight."""
    return F.linear(x, dequantized(packed, scales, bits, x.dtype), bias)
