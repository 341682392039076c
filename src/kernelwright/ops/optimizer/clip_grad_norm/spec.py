"""The norm of all gradients, and their scaling by it: the mathematics.

norm  = (sum over tensors and elements of |x|^p)^(1/p); the largest |x| for p = inf
x    *= min(1, max_norm / (norm + 1e-6))
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.parameters import GPT2

LISTS = {
    "one": lambda shape: (shape,),
    "few": lambda shape: (shape, (129,), ()),
    "gpt2": lambda shape: GPT2,
}
ORDERS = ("1.0", "inf", "3.0", "0.0", "-inf")


def _cases(sweep):
    return (
        *(case(s, d) for d in FLOATS for s in ((0,), (1,), (7,), (5, 33), (5, 1000), (9, 2000))),
        *(
            case((3, 4, 37), d, layout=layout)
            for d in FLOATS
            for layout in ("sliced", "permuted", "offset")
        ),
        *(case((4, 66), d, values=v) for d in FLOATS for v in ("large", "nan", "inf", "constant")),
        *(case((5, 33), d, **extra) for d in FLOATS for extra in sweep),
        *(
            case((2**26,), d, use="bench", label="one parameter", list="one")
            for d in (torch.float32, torch.bfloat16)
        ),
        *(
            case((sum(map(math.prod, GPT2)),), d, use="bench", label="GPT-2 124M", list="gpt2")
            for d in (torch.float32, torch.bfloat16)
        ),
        case((2**31 + 5,), torch.bfloat16, use="big", list="one"),
    )


def _tensors(c, device):
    shapes = LISTS[c.param("list", "few")](c.shape)
    return [tensor(c, f"x{i}", device, shape=s) for i, s in enumerate(shapes)]


def result_dtype(tensors) -> torch.dtype:
    """The dtype of PyTorch's norm of tensors of several dtypes."""
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = torch.promote_types(dtype, t.dtype)
    return dtype


def norm_reference(tensors, norm_type):
    p = float(norm_type)
    norms = [torch.linalg.vector_norm(t, p) for t in tensors]
    return torch.linalg.vector_norm(torch.stack(norms), p)


def norm_inputs(c, device):
    return {"tensors": _tensors(c, device), "norm_type": c.param("norm_type", "2.0")}


def norm_cost(tensors, **others):
    n = sum(t.numel() for t in tensors)
    return Cost((sum(t.nbytes for t in tensors),), (), flops=2 * n)


def norm_outputs(tensors, **others):
    return (TensorSpec.contiguous((), result_dtype(tensors)),)


def clip_reference(grads, total_norm, max_norm):
    factor = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for g in grads:
        g *= factor


def clip_inputs(c, device):
    # a norm that need not be that of the list: only its ratio to max_norm matters
    norm = torch.tensor(c.param("norm", 4.0), dtype=c.dtype, device=device)
    return {"grads": _tensors(c, device), "total_norm": norm, "max_norm": 1.0}


def clip_cost(grads, **others):
    size = sum(t.nbytes for t in grads)
    return Cost((size,), (size,), flops=sum(t.numel() for t in grads))


NORM = Operator(
    name="get_total_norm",
    schema="(Tensor[] tensors, str norm_type) -> (Tensor norm)",
    reference=norm_reference,
    inputs=norm_inputs,
    cases=_cases(tuple({"norm_type": o} for o in ORDERS)),
    cost=norm_cost,
    outputs=norm_outputs,
    layout="any",
    source="torch.nn.utils.get_total_norm",
)
CLIP = Operator(
    name="clip_grads_with_norm_",
    schema="(Tensor(a!)[] grads, Tensor total_norm, float max_norm) -> ()",
    reference=clip_reference,
    inputs=clip_inputs,
    cases=_cases(tuple({"norm": n} for n in (0.0, 0.5, math.inf, math.nan))),
    cost=clip_cost,
    outputs=lambda **args: (),
    layout="any",
    source="torch.nn.utils.clip_grads_with_norm_; Pascanu et al. 2013, arXiv:1211.5063",
)
