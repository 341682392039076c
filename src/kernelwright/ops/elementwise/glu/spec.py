"""Gated linear units: the mathematics. y = act(gate) * up.

swiglu: act is silu, act(g) = g / (1 + exp(-g)). geglu: gelu, by erf or by tanh.
With the incoming gradient gy, ggate = gy * up * act'(gate) and gup = gy * act(gate).
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor
from kernelwright.contract.sharding import Rows

from .. import _activations as act

BENCH = {
    (8192, 11008): "Llama 2 7B MLP, 8192 tokens",
    (8192, 14336): "Llama 3 8B MLP, 8192 tokens",
    (16384, 3072): "Qwen3 0.6B MLP, 16384 tokens",
}
BF16 = torch.bfloat16
#: gate and up are the two halves of one tensor, as in the result of a fused projection.
FUSED = {"fused": True}
SWIGLU_CASES = (
    *adversarial(sweep=(FUSED,)),
    *(case((7, 48), d, **p) for d in FLOATS for p in ({}, FUSED)),  # rows end inside a tile
    *(case((9001,), d) for d in FLOATS),
    *(case(shape, BF16, use="bench", label=label) for shape, label in BENCH.items()),
    case((8192, 11008), torch.float32, use="bench", label="Llama 2 7B MLP, 8192 tokens"),
    case((8192, 14336), BF16, use="bench", label="a fused gate_up of Llama 3 8B", **FUSED),
    case((256, 3072), BF16, use="bench", label="Qwen3 0.6B MLP, 256 tokens"),
    case((2**18, 8208), BF16, use="big"),
)
# The same kernels with another activation: each formula with each dtype and special value.
GEGLU_CASES = (
    *(
        case(shape, d, approximate=a)
        for d in FLOATS
        for a in ("none", "tanh")
        for shape in ((0,), (5, 33), (9001,))
    ),
    *(
        case((3, 4, 37), BF16, approximate="none", layout=x)
        for x in ("sliced", "permuted", "offset", "expanded")
    ),
    *(
        case((4, 66), d, approximate=a, values=v)
        for d in FLOATS
        for a in ("none", "tanh")
        for v in ("large", "nan", "inf")
    ),
    *(case((7, 48), d, approximate=a, **FUSED) for d in FLOATS for a in ("none", "tanh")),
    *(
        case(shape, BF16, use="bench", label=label, approximate=a)
        for shape, label in BENCH.items()
        for a in ("none", "tanh")
    ),
    case((2**18, 8208), BF16, use="big", approximate="none"),
)


def _activation(approximate):
    """(value, slope, noise of the value, noise of the slope) as functions of the gate."""
    if approximate is None:
        return act.silu, act.silu_slope, act.silu_noise, act.silu_slope_noise
    return tuple(
        lambda x, f=f: f(x, approximate)
        for f in (act.gelu, act.gelu_slope, act.gelu_noise, act.gelu_slope_noise)
    )


def reference(gate, up, approximate=None):
    return _activation(approximate)[0](gate) * up


def backward_reference(gy, gate, up, approximate=None):
    value, slope, *_ = _activation(approximate)
    return gy * up * slope(gate), gy * value(gate)


def noise(gate, up, approximate=None):
    return (_activation(approximate)[2](gate) * up.double().abs(),)


def backward_noise(gy, gate, up, approximate=None):
    _, _, value, slope = _activation(approximate)
    gy, up = gy.double().abs(), up.double().abs()
    return gy * up * slope(gate), gy * value(gate)


def inputs(c, device):
    params = {k: v for k, v in c.params if k == "approximate"}
    if c.param("fused"):
        both = tensor(c, "gate_up", device, shape=(*c.shape[:-1], 2 * c.shape[-1]))
        gate, up = both.chunk(2, -1)
        return {"gate": gate, "up": up, **params}
    return {"gate": tensor(c, "gate", device), "up": tensor(c, "up", device), **params}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), **inputs(c, device)}


def outputs(gate, up, approximate=None):
    return (TensorSpec.contiguous(gate.shape, torch.promote_types(gate.dtype, up.dtype)),)


def backward_outputs(gy, gate, up, approximate=None):
    return tuple(TensorSpec.contiguous(t.shape, t.dtype) for t in (gate, up))


def cost(gate, up, approximate=None):
    (y,) = outputs(gate, up)
    return Cost(reads=(gate.nbytes, up.nbytes), writes=(y.nbytes,), flops=12 * gate.numel())


def backward_cost(gy, gate, up, approximate=None):
    reads = (gy.nbytes, gate.nbytes, up.nbytes)
    return Cost(reads, writes=(gate.nbytes, up.nbytes), flops=20 * gate.numel())


def _forward(name, more, cases):
    return Operator(
        name=name,
        schema=f"(Tensor gate, Tensor up{more}) -> (Tensor y)",
        reference=reference,
        inputs=inputs,
        cases=cases,
        cost=cost,
        outputs=outputs,
        layout="rows",
        sharding=Rows(),
        noise=noise,
        source="Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202",
    )


def _backward(name, more, cases):
    return Operator(
        name=f"{name}.backward",
        schema=f"(Tensor gy, Tensor gate, Tensor up{more}) -> (Tensor ggate, Tensor gup)",
        reference=backward_reference,
        inputs=backward_inputs,
        cases=cases,
        cost=backward_cost,
        outputs=backward_outputs,
        layout="rows",
        sharding=Rows(),
        noise=backward_noise,
        source="the chain rule",
    )


APPROXIMATE = ', str approximate="none"'
SWIGLU, SWIGLU_BACKWARD = (make("swiglu", "", SWIGLU_CASES) for make in (_forward, _backward))
GEGLU, GEGLU_BACKWARD = (make("geglu", APPROXIMATE, GEGLU_CASES) for make in (_forward, _backward))
