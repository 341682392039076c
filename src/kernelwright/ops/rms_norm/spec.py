"""rms_norm: the maths. y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps), along a row.

The backward takes rstd from the forward. With xhat = x * rstd and g = gy * weight,
gx = rstd * (g - xhat * mean(g * xhat)) and gweight = sum of gy * xhat over the rows.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor

# (rows, columns): hidden sizes of GPT-2, Llama 3 and quack's and Liger's published tables.
BENCH = {
    (32768, 256): "short rows",
    (32768, 1024): "GPT-2 medium hidden",
    (16384, 4096): "Llama 3 8B hidden",
    (8192, 8192): "Llama 3 70B hidden",
    (8192, 16384): "Llama 3 405B hidden",
    (4096, 65536): "",
    (2048, 131072): "",
    (4096, 768): "GPT-2 hidden, small",
}
PARAMS = {"eps": 1e-6, "weight": "same"}
CASES = (
    *adversarial(
        **PARAMS,
        sweep=({"weight": "none"}, {"weight": "float32"}, {"eps": 1.0}, {"eps": 0.0}),
    ),
    *(case((3, 5000), d, **PARAMS) for d in FLOATS),
    *(case((300, 64), d, **PARAMS) for d in FLOATS),  # more rows than programs, in the backward
    *(
        case(shape, d, use="bench", label=label, **PARAMS)
        for shape, label in BENCH.items()
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**18 + 1, 8192), torch.bfloat16, use="big", **PARAMS),
)


def reference(x, weight, eps):
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = x * rstd
    return (y if weight is None else y * weight), rstd


def backward_reference(gy, x, weight, rstd):
    xhat = x * rstd
    g = gy if weight is None else gy * weight
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return gx, x.new_empty(0) if weight is None else (gy * xhat).sum_to_size(weight.shape)


def inputs(c, device):
    return {"x": tensor(c, "x", device), "weight": _weight(c, device), "eps": c.param("eps")}


def backward_inputs(c, device):
    x = tensor(c, "x", device)
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + c.param("eps"))
    return {"gy": tensor(c, "gy", device), "x": x, "weight": _weight(c, device), "rstd": rstd}


def _weight(c, device):
    """Of the input's dtype, float32 (a float32 weight under 16-bit activations), or None."""
    if c.param("weight") == "none":
        return None
    dtype = torch.float32 if c.param("weight") == "float32" else c.dtype
    return tensor(c, "weight", device, dtype=dtype, shape=c.shape[-1:])


def outputs(x, weight, eps):
    rstd = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (
        TensorSpec.contiguous(x.shape, x.dtype),
        TensorSpec.contiguous((*x.shape[:-1], 1), rstd),
    )


def backward_outputs(gy, x, weight, rstd):
    gweight = ((0,), x.dtype) if weight is None else (weight.shape, weight.dtype)
    return TensorSpec.contiguous(x.shape, x.dtype), TensorSpec.contiguous(*gweight)


def cost(x, weight, eps):
    rows = 4 * (x.numel() // max(x.shape[-1], 1))
    w = 0 if weight is None else weight.nbytes
    return Cost(reads=(x.nbytes, w), writes=(x.nbytes, rows), flops=4 * x.numel())


def backward_cost(gy, x, weight, rstd):
    w = 0 if weight is None else weight.nbytes
    return Cost(
        reads=(gy.nbytes, x.nbytes, rstd.nbytes, w), writes=(x.nbytes, w), flops=8 * x.numel()
    )


def backward_noise(gy, x, weight, rstd):
    """The rounding error of float32 where the backward's differences and sums cancel.

    In gx = rstd (g - xhat m), m = mean(g xhat), g and xhat m are rounded, each by u of its size,
    and m errs as a sum does: u sqrt(log2 n) ||g xhat|| / n over a tree (Higham, Accuracy and
    Stability of Numerical Algorithms, 4.2, with roundings taken as independent). gweight is such
    a sum over the rows.
    """
    u = torch.finfo(torch.float32).eps / 2
    gy, xhat = gy.double(), x.double() * rstd
    g = gy if weight is None else gy * weight.double()
    n = max(x.shape[-1], 1)
    norm = (g * xhat).norm(dim=-1, keepdim=True)
    mean = (g * xhat).mean(-1, keepdim=True).abs() + _levels(n) * norm / n
    gx = u * rstd * (g.abs() + xhat.abs() * mean)
    if weight is None:
        return gx, gx.new_empty(0)
    rows = (gy * xhat).square().sum_to_size(weight.shape).sqrt()
    return gx, u * _levels(x.numel() // n) * rows


def _levels(n: int) -> float:
    """Square root of the levels of a tree that adds n values."""
    return math.log2(max(n, 2)) ** 0.5


def unit_mean_square(args, results):
    """Without a weight, no row of y has a mean square above 1."""
    if args["weight"] is not None or not results[0].numel():
        return None
    over = results[0].double().square().mean(-1).nan_to_num(0.0).max() - 1
    limit = 4 * torch.finfo(results[0].dtype).eps
    return f"a row's mean square is 1 + {over:.2g}" if over > limit else None


FORWARD = Operator(
    name="rms_norm",
    schema="(Tensor x, Tensor? weight, float eps) -> (Tensor y, Tensor rstd)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    properties={"rows have a mean square of at most 1": unit_mean_square},
    source="torch.nn.functional.rms_norm; Zhang and Sennrich 2019, arXiv:1910.07467",
)
BACKWARD = Operator(
    name="rms_norm.backward",
    schema="(Tensor gy, Tensor x, Tensor? weight, Tensor rstd) -> (Tensor gx, Tensor gweight)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    noise=backward_noise,
    source="autograd of torch.nn.functional.rms_norm",
)
