"""gelu: the maths. gelu(x) = x Phi(x), Phi the normal distribution, or its approximation by tanh.

"none": Phi(x) = (1 + erf(x / sqrt 2)) / 2.
"tanh": Phi(x) ~ (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3).
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor

# every size that the targets speak of, then the widest activations of two models
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
    """Without 1 + erf and 1 + tanh, which cancel in the negative tail, in float64 too."""
    if approximate == "tanh":
        return x * torch.sigmoid(_two_u(x))
    return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))


def backward_reference(gy, x, approximate):
    if approximate == "tanh":
        s, rest = torch.sigmoid(_two_u(x)), torch.sigmoid(-_two_u(x))
        slope = s + x * s * rest * math.sqrt(8 / math.pi) * (1 + 3 * 0.044715 * x * x)
    else:
        density = torch.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
        slope = 0.5 * torch.erfc(-x * math.sqrt(0.5)) + x * density
    return gy * slope


def _two_u(x):
    return math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)


# The formulas add 1 to an erf or tanh near -1, and the slope is zero at x = -0.75: there an error
# in ulp of the result says nothing. What float32 makes of the formulas, in units of its roundoff:
ROUNDOFF = 2.0**-24


def noise(x, approximate):
    """x/2 (1 + erf z): erf is within 1 ulp, the roundings of z come in times z erf'(z) < 0.5;
    tanh within 2 ulp, three roundings of u times u tanh'(u) < 0.45. Rounding 1 + erf is part of it
    until erf nears -1, where the sum is exact."""
    units = 4.0 if approximate == "tanh" else 2.0
    return (0.5 * units * ROUNDOFF * x.double().abs(),)


def backward_noise(gy, x, approximate):
    """The first term as above. The second is x phi(x), whose exponent's roundings come in times
    x^2 and which five more follow; or x/2 (1 - tanh^2) inner, whose bracket is off by a unit
    until tanh is +-1, from |u| = 9 or |x| = 6 on."""
    x, gy = x.double(), gy.double()
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        units = 2.0 + torch.where(x.abs() < 6, x.abs() * inner, 0.0)
    else:
        density = torch.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
        units = 1.0 + x.abs() * density * (x * x + 5)
    return (units * ROUNDOFF * gy.abs(),)


def inputs(c, device):
    return {"x": tensor(c, "x", device), "approximate": c.param("approximate")}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), **inputs(c, device)}


def like(t) -> tuple[TensorSpec, ...]:
    """A result of the strides of x, as PyTorch's."""
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
    noise=backward_noise,
    source="autograd of torch.nn.functional.gelu",
)
