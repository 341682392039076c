"""bias_gelu: the mathematics. y = gelu(x + bias), one bias row for all rows, gelu by erf or tanh.

With z = x + bias, gx = gy * gelu'(z), and gbias is the sum of gx over the rows.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor
from kernelwright.contract.rounding import U, root_levels
from kernelwright.contract.sharding import Rows

from .. import _activations as act

BENCH = {
    (32768, 3072): "GPT-2 MLP, 32 x 1024 tokens",
    (8192, 5120): "GPT-2 large MLP, 8 x 1024 tokens",
    (8192, 16384): "the width of GPT-J's MLP, 8192 tokens",
}
CASES = (
    *adversarial(approximate="none", sweep=({"approximate": "tanh"},)),
    *(case((4, 66), d, values=v, approximate="tanh") for d in FLOATS for v in ("large", "nan")),
    *(case((77, 264), d, approximate=a) for d in FLOATS for a in ("none", "tanh")),
    *(
        case(shape, d, use="bench", label=label, approximate="tanh")
        for shape, label in BENCH.items()
        for d in (torch.bfloat16, torch.float32)
    ),
    case((32768, 3072), torch.bfloat16, use="bench", approximate="none", label=BENCH[32768, 3072]),
    case((1024, 3072), torch.bfloat16, use="bench", approximate="tanh", label="GPT-2 MLP, 1024"),
    case((2**18, 8208), torch.bfloat16, use="big", approximate="none"),
)


def reference(x, bias, approximate):
    return act.gelu(x + bias, approximate)


def backward_reference(gy, x, bias, approximate):
    gx = gy * act.gelu_slope(x + bias, approximate)
    return gx, gx.sum_to_size(bias.shape)


def noise(x, bias, approximate):
    """The noise of gelu, and the rounding of the sum times the slope, which is below 1.13."""
    z = x.double() + bias.double()
    return (act.gelu_noise(z, approximate) + 1.13 * U * z.abs(),)


def backward_noise(gy, x, bias, approximate):
    """gx: the noise of the slope, and the rounding of z times the second derivative, which is below
    0.8. gbias: the errors of the terms, assumed to be independent, and those of a tree sum (Higham,
    Accuracy and Stability of Numerical Algorithms, 4.2)."""
    z, gy = x.double() + bias.double(), gy.double()
    slope = act.gelu_slope_noise(z, approximate) + 0.8 * U * z.abs()
    gx, terms = gy.abs() * slope, gy * act.gelu_slope(z, approximate)
    root = root_levels(x.numel() // max(x.shape[-1], 1))
    squares = gx.square() + (root * U * terms).square()
    return gx, squares.sum_to_size(bias.shape).sqrt()


def inputs(c, device):
    bias = tensor(c, "bias", device, shape=c.shape[-1:])
    return {"x": tensor(c, "x", device), "bias": bias, "approximate": c.param("approximate")}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), **inputs(c, device)}


def outputs(x, bias, approximate):
    return (TensorSpec.contiguous(x.shape, torch.promote_types(x.dtype, bias.dtype)),)


def backward_outputs(gy, x, bias, approximate):
    return tuple(TensorSpec.contiguous(t.shape, t.dtype) for t in (x, bias))


def cost(x, bias, approximate):
    (y,) = outputs(x, bias, approximate)
    return Cost(reads=(x.nbytes, bias.nbytes), writes=(y.nbytes,), flops=21 * x.numel())


def backward_cost(gy, x, bias, approximate):
    reads, writes = (gy.nbytes, x.nbytes, bias.nbytes), (x.nbytes, bias.nbytes)
    return Cost(reads, writes, flops=27 * x.numel())


FORWARD = Operator(
    name="bias_gelu",
    schema='(Tensor x, Tensor bias, str approximate="none") -> (Tensor y)',
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(),
    noise=noise,
    source="torch.nn.functional.gelu(x + bias)",
)
BACKWARD = Operator(
    name="bias_gelu.backward",
    schema='(Tensor gy, Tensor x, Tensor bias, str approximate="none") -> '
    "(Tensor gx, Tensor gbias)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    sharding=Rows(),
    noise=backward_noise,
    source="autograd of torch.nn.functional.gelu(x + bias)",
)
