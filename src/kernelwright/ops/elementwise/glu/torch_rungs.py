"""Gated linear units in PyTorch: line by line, and PyTorch's operators one after another."""

import torch
import torch.nn.functional as F

from .. import _activations as act

aten = torch.ops.aten


def manual_swiglu(gate, up):
    g, u = _wide(gate, up)
    return (act.silu(g) * u).to(_kind(gate, up))


def manual_swiglu_backward(gy, gate, up):
    d, g, u = _wide(gy, gate, up)
    return (d * u * act.silu_slope(g)).to(gate.dtype), (d * act.silu(g)).to(up.dtype)


def native_swiglu(gate, up):
    return F.silu(gate) * up


def native_swiglu_backward(gy, gate, up):
    ggate = aten.silu_backward((gy * up).to(gate.dtype), gate)
    return ggate, (gy * F.silu(gate)).to(up.dtype)


def manual_geglu(gate, up, approximate):
    g, u = _wide(gate, up)
    return (act.gelu(g, approximate) * u).to(_kind(gate, up))


def manual_geglu_backward(gy, gate, up, approximate):
    d, g, u = _wide(gy, gate, up)
    ggate = d * u * act.gelu_slope(g, approximate)
    return ggate.to(gate.dtype), (d * act.gelu(g, approximate)).to(up.dtype)


def native_geglu(gate, up, approximate):
    return F.gelu(gate, approximate=approximate) * up


def native_geglu_backward(gy, gate, up, approximate):
    ggate = aten.gelu_backward((gy * up).to(gate.dtype), gate, approximate=approximate)
    return ggate, (gy * F.gelu(gate, approximate=approximate)).to(up.dtype)


def _kind(gate, up):
    return torch.promote_types(gate.dtype, up.dtype)


def _wide(*tensors):
    return [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors]
