"""gelu: the mathematics. gelu(x) = x Phi(x), Phi the normal distribution, or approximated by tanh.

"none": Phi(x) = (1 + erf(x / sqrt 2)) / 2.
"tanh": Phi(x) ~ (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3).
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor
from kernelwright.contract.sharding import Rows

from .._activations import gelu, gelu_noise, gelu_slope, gelu_slope_noise

# the sizes of the performance targets, followed by the widest activations of two models
SIZES = {"none": (16, 18, 20, 22, 24, 28), "tanh": (20, 24, 28)}
MODELS = {
    (8192, 3072): "GPT-2 MLP, 8 x 1024 tokens",
    (4096, 14336): "the width of Llama 3's MLP, 4096 tokens",
}
CASES = (
    *adversarial(approximate="none", sweep=({"approximate": "tanh"},)),
    *(
        case((4, 66), d, values=v, approximate="tanh")
        for d in FLOATS
        for v in ("large", "nan", "inf", "neginf_row")
    ),
    *(case((n,), d, approximate=a) for n in (33001,) for d in FLOATS for a in SIZES),
    *(
        case((2**k,), d, use="bench", label=f"2^{k} elements", approximate=a)
        for a, sizes in SIZES.items()
        for k in sizes
        for d in (torch.bfloat16, torch.float32)
    ),
    *(case((2**24,), torch.float16, use="bench", approximate=a) for a in SIZES),
    *(
        case(shape, d, use="bench", label=label, approximate="tanh")
        for shape, label in MODELS.items()
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**31 + 7,), torch.bfloat16, use="big", approximate="none"),
)


def reference(x, approximate):
    return gelu(x, approximate)


def backward_reference(gy, x, approximate):
    return gy * gelu_slope(x, approximate)


def noise(x, approximate):
    return (gelu_noise(x, approximate),)


def backward_noise(gy, x, approximate):
    return (gelu_slope_noise(x, approximate) * gy.double().abs(),)


def inputs(c, device):
    return {"x": tensor(c, "x", device), "approximate": c.param("approximate")}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), **inputs(c, device)}


def like(t) -> tuple[TensorSpec, ...]:
    """A result with the strides of x, as in PyTorch."""
    return (TensorSpec(tuple(t.shape), tuple(t.stride()), t.dtype),)


def cost(x, approximate):
    return Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=20 * x.numel())


def backward_cost(gy, x, approximate):
    return Cost(reads=(x.nbytes, x.nbytes), writes=(x.nbytes,), flops=25 * x.numel())


FORWARD = Operator(
    name="gelu",
    schema='(Tensor x, str approximate="none") -> (Tensor y)',
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=lambda x, approximate: like(x),
    layout="dense",
    sharding=Rows(),
    noise=noise,
    source="torch.nn.functional.gelu; Hendrycks and Gimpel, arXiv:1606.08415",
)
BACKWARD = Operator(
    name="gelu.backward",
    schema='(Tensor gy, Tensor x, str approximate="none") -> (Tensor gx)',
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=lambda gy, x, approximate: like(x),
    layout="dense",
    sharding=Rows(),
    noise=backward_noise,
    source="autograd of torch.nn.functional.gelu",
)
