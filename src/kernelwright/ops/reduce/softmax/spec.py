"""softmax: the mathematics. y_i = exp(x_i - max x) / sum_j exp(x_j - max x) along one dimension.

The backward needs only the result: gx_i = y_i * (gy_i - sum_j gy_j y_j).
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor
from kernelwright.contract.rounding import U
from kernelwright.contract.sharding import Rows

# (rows, columns): attention scores and vocabularies of GPT-2 and Llama 3, and row lengths up to
# some that do not fit on chip; the shapes of the tables that quack and Liger publish.
BENCH = {
    (32768, 256): "short rows",
    (32768, 1024): "GPT-2 attention scores",
    (16384, 4096): "Llama 3 attention scores",
    (8192, 8192): "Llama 3 attention scores, long context",
    (8192, 16384): "",
    (4096, 65536): "GPT-2 vocabulary, padded",
    (2048, 131072): "Llama 3 vocabulary, padded",
    (1024, 262144): "Gemma vocabulary",
    (4096, 768): "small",
}
DIMS = tuple({"dim": d} for d in (-2, 0))
CASES = (
    *adversarial(dim=-1, sweep=DIMS),
    *(case((3, 5000), d, dim=-1) for d in FLOATS),
    *(case((4, 66), d, values="shifted", dim=-1) for d in FLOATS),
    *(
        case(shape, d, use="bench", label=label, dim=-1)
        for shape, label in BENCH.items()
        for d in (torch.bfloat16, torch.float32)
    ),
    case((32768, 1024), torch.float16, use="bench", dim=-1),
    case((16, 2048, 1024), torch.bfloat16, use="bench", label="a middle dimension", dim=-2),
    case((16, 2048, 1024), torch.float32, use="bench", label="a middle dimension", dim=-2),
    case((2**17 + 1, 16384), torch.bfloat16, use="big", dim=-1),
)


def reference(x, dim):
    return torch.softmax(x, dim)


def backward_reference(gy, y, dim):
    return y * (gy - (gy * y).sum(dim, keepdim=True))


def inputs(c, device):
    return {"x": tensor(c, "x", device), "dim": c.param("dim")}


def backward_inputs(c, device):
    y = torch.softmax(tensor(c, "x", device), c.param("dim"))
    return {"gy": tensor(c, "gy", device), "y": y, "dim": c.param("dim")}


def outputs(x, dim):
    return (TensorSpec.contiguous(x.shape, x.dtype),)


def backward_noise(gy, y, dim):
    """The noise of the backward. gy - dot may cancel, which leaves the rounding error of dot: a
    tree of sums of depth log2 n and one product, where each operation has an error of at most 2^-24
    of its terms, independent of the others (Higham and Mary 2019: errors grow with the square root
    of the depth)."""
    g, p = gy.double(), y.double()
    terms = (g * p).abs().sum(dim, keepdim=True)
    depth = 1 + math.log2(max(y.shape[dim], 1)) if y.ndim else 1
    return (p.abs() * terms * (depth**0.5 * U),)


def _reduced(args):
    """`dim`, counted from the end."""
    ndim = args["y" if "y" in args else "x"].ndim
    return (args["dim"] if args["dim"] < 0 else args["dim"] - ndim,)


def rows_sum_to_one(args, results):
    if results[0].numel() == 0:
        return None
    sums = results[0].double().sum(args["dim"])
    off = (sums - 1).abs()[~sums.isnan()]
    limit = 4 * torch.finfo(results[0].dtype).eps * args["x"].shape[args["dim"]] ** 0.5
    return f"a row sums to 1 +- {off.max():.2g}" if off.numel() and off.max() > limit else None


FORWARD = Operator(
    name="softmax",
    schema="(Tensor x, int dim) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, dim: Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=5 * x.numel()),
    outputs=outputs,
    layout="rows",
    sharding=Rows(_reduced),
    properties={"rows sum to 1": rows_sum_to_one},
    source="torch.nn.functional.softmax",
)
BACKWARD = Operator(
    name="softmax.backward",
    schema="(Tensor gy, Tensor y, int dim) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=lambda gy, y, dim: Cost(
        reads=(y.nbytes, y.nbytes), writes=(y.nbytes,), flops=4 * y.numel()
    ),
    outputs=lambda gy, y, dim: (TensorSpec.contiguous(y.shape, y.dtype),),
    layout="rows",
    sharding=Rows(_reduced),
    noise=backward_noise,
    source="autograd of torch.nn.functional.softmax",
)
