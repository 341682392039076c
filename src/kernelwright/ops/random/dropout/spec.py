"""dropout: the mathematics. y_i = x_i / (1 - p) if a uniform number u_i >= p, else 0 * x_i.

u_i comes from word i // 2 % 4 of Philox4x32-10 at counter i // 8 under the seed (`_keep.py`), where
i is the position of the element in row-major order for any strides: a gradient with other strides
gets the same mask. The backward is therefore the forward applied to gy, and only the seed is saved.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import adversarial, tensor

from .._keep import factor, kept

CASES = (
    *adversarial(p=0.1, sweep=tuple({"p": p} for p in (0.0, 0.5, 0.999, 1.0))),
    case((3, 5000), torch.float32, p=0.5),
    *(
        case((n,), d, use="bench", label=label, p=0.1)
        for n, label in ((2**24, "GPT-2 residual, 21,845 tokens"), (2**28, ""))
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**31 + 2**20 + 3,), torch.bfloat16, use="big", p=0.1),
)


def reference(x, seed, p):
    return x * factor(x.shape, seed, p)


def backward_reference(gy, seed, p):
    return gy * factor(gy.shape, seed, p)


def seed(c, device):
    generator = torch.Generator().manual_seed(c.seed)
    return torch.randint(2**63 - 1, (1,), generator=generator).to(device)


def inputs(c, device):
    return {"x": tensor(c, "x", device), "seed": seed(c, device), "p": c.param("p")}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), "seed": seed(c, device), "p": c.param("p")}


def mask(args, results):
    """Exactly the dropped elements are 0."""
    x = args["x"] if "x" in args else args["gy"]
    wrong = ((results[0] != 0) != kept(x.shape, args["seed"], args["p"])) & x.isfinite() & (x != 0)
    return f"{int(wrong.sum())} elements are dropped or kept wrongly" if wrong.any() else None


FORWARD = Operator(
    name="dropout",
    schema="(Tensor x, Tensor seed, float p) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, seed, p: Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=x.numel()),
    outputs=lambda x, seed, p: (TensorSpec.contiguous(x.shape, x.dtype),),
    layout="rows",
    properties={"the mask is Philox's": mask},
    source="torch.nn.functional.dropout; Philox: Salmon et al. 2011",
)
BACKWARD = Operator(
    name="dropout.backward",
    schema="(Tensor gy, Tensor seed, float p) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=lambda gy, seed, p: Cost(reads=(gy.nbytes,), writes=(gy.nbytes,), flops=gy.numel()),
    outputs=lambda gy, seed, p: (TensorSpec.contiguous(gy.shape, gy.dtype),),
    layout="rows",
    properties={"the mask is Philox's": mask},
    source="autograd of torch.nn.functional.dropout",
)
