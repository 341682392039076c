"""softmax: the maths. y = x^2, until you write yours; the backward is gx = 2 x gy."""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import adversarial, tensor

# Sizes and special values that every operator must survive, shapes of real models to time, and one
# that 32-bit addresses do not reach.
CASES = (
    *adversarial(),
    *(
        case(shape, d, use="bench", label=label)
        for shape, label in {(2**20,): "small", (8192, 3072): "GPT-2 MLP, 8 x 1024 tokens"}.items()
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**31 + 5,), torch.bfloat16, use="big"),
)


def reference(x):
    """The definition of right: plain PyTorch that runs in float64."""
    return x * x


def backward_reference(gy, x):
    return 2 * x * gy


def inputs(c, device):
    return {"x": tensor(c, "x", device)}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), "x": tensor(c, "x", device)}


def like(t) -> tuple[TensorSpec, ...]:
    """A result of the strides of x, as PyTorch's."""
    return (TensorSpec(tuple(t.shape), tuple(t.stride()), t.dtype),)


FORWARD = Operator(
    name="softmax",
    schema="(Tensor x) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x: Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=x.numel()),
    outputs=lambda x: like(x),
    layout="dense",
    source="torch.square",
)
BACKWARD = Operator(
    name="softmax.backward",
    schema="(Tensor gy, Tensor x) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=lambda gy, x: Cost(reads=(x.nbytes, x.nbytes), writes=(x.nbytes,), flops=2 * x.numel()),
    outputs=lambda gy, x: like(x),
    layout="dense",
    source="autograd of torch.square",
)
