"""dot: the mathematics. y = sum of x_i z_i, over one dimension.

Products and partial sums are computed in float32, or in float64 for float64; the result is rounded
once.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.case import LAYOUTS
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.sharding import SUM

EVERY = (*FLOATS, torch.float64)
BENCH = (2**20, 2**24, 2**28)
CASES = (
    *(case((n,), d) for d in EVERY for n in (0, 1, 7, 165, 1000, 4096, 70_001)),
    *(case((240,), d, layout=layout) for d in FLOATS for layout in LAYOUTS[1:]),
    *(case((264,), d, values=v) for d in FLOATS for v in ("nan", "inf", "constant")),
    *(case((n,), d, use="bench") for n in BENCH for d in (torch.bfloat16, torch.float16)),
    *(case((n,), torch.float32, use="bench") for n in BENCH),
    case((2**31 + 5,), torch.bfloat16, use="big"),
)


def reference(x, other):
    return (x * other).sum()


def backward_reference(gy, x, other):
    return gy * other, gy * x


def inputs(c, device):
    return {"x": tensor(c, "x", device), "other": tensor(c, "other", device)}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device, shape=()), **inputs(c, device)}


def noise(x, other):
    """For a tree sum of terms of random sign: u sqrt(log2 n) ||x z||, as derived in `sum`."""
    u = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    products = torch.linalg.vector_norm(x.double() * other.double())
    return (u * math.log2(max(x.numel(), 2)) ** 0.5 * products,)


def sharding(args, results):
    """Each process holds a part of the sum."""
    yield {"x": 0, "other": 0, "y": SUM}


def sharding_backward(args, results):
    yield {"gy": None, "x": 0, "other": 0, "gx": 0, "gother": 0}


FORWARD = Operator(
    name="dot",
    schema="(Tensor x, Tensor other) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, other: Cost(
        reads=(x.nbytes, other.nbytes), writes=(x.itemsize,), flops=2 * x.numel()
    ),
    outputs=lambda x, other: (TensorSpec.contiguous((), x.dtype),),
    layout="rows",
    noise=noise,
    sharding=sharding,
    source="torch.dot",
)
BACKWARD = Operator(
    name="dot.backward",
    schema="(Tensor gy, Tensor x, Tensor other) -> (Tensor gx, Tensor gother)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=lambda gy, x, other: Cost(
        reads=(x.nbytes, other.nbytes), writes=(x.nbytes, other.nbytes), flops=2 * x.numel()
    ),
    outputs=lambda gy, x, other: (
        TensorSpec.contiguous(x.shape, x.dtype),
        TensorSpec.contiguous(other.shape, other.dtype),
    ),
    layout="rows",
    sharding=sharding_backward,
    source="autograd of torch.dot",
)
