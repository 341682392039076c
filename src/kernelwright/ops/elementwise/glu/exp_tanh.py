"""Gated linear units by exp, tanh and erf, which give equal results for equal elements.

PyTorch's silu and gelu compute the elements of whole vector registers in another way than the rest
on a CPU. So there the same element can differ in its last bit at another place or in a tensor of
another size. exp, tanh and erf, sums and products do not differ.
"""

from __future__ import annotations

import math

import torch


def swiglu(gate, up):
    g, u = _wide(gate, up)
    return (silu(g) * u).to(torch.promote_types(gate.dtype, up.dtype))


def geglu(gate, up, approximate):
    g, u = _wide(gate, up)
    return (gelu(g, approximate) * u).to(torch.promote_types(gate.dtype, up.dtype))


def silu(x):
    return x / (1 + torch.exp(-x))


def gelu(x, approximate):
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1 + torch.erf(math.sqrt(0.5) * x))


def _wide(*tensors):
    return [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors]
