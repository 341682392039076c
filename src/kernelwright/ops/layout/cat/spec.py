"""cat: the mathematics. Up to eight matrices with C0, C1, ... columns, joined row by row: the
result has C0 + C1 + ... columns, and element (r, c) of xk is element (r, C0 + ... + C(k-1) + c) of
y.

Tensors joined along any dimension are matrices of this kind: (the dimensions before it, the rest).
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import tensor

MOST = 8  # tensors per call
NAMES = tuple(f"x{k}" for k in range(MOST))
EVERY = (torch.float32, torch.bfloat16, torch.int64)
# the shape gives the columns of x0, `more` those of the others
SHAPES = (
    ((5, 8), (16,)),
    ((3, 7), (1, 9)),
    ((1, 1), (1,)),
    ((1, 300), (3, 5, 16, 1, 2, 40, 8)),
    ((2, 3, 24), (8, 64)),
    ((0, 8), (8,)),
    ((600, 3), (2,)),
)
BENCH = (
    ((8192, 4096), (4096,), "two halves of a row"),
    ((1, 2**25), (2**25, 2**25), "batches joined along dimension 0"),
    ((64, 4095), (1,), "a token appended to a row of 4095"),
    ((65536, 1001), (1023, 33), "odd widths"),
)
CASES = (
    *(case(shape, d, more=more) for d in EVERY for shape, more in SHAPES),
    *(case((6, 40), torch.float16, more=(24,), values=v) for v in ("normal", "nan", "inf")),
    *(
        case((6, 40), d, more=(24, 8), layout=layout)
        for d in (torch.float32, torch.bfloat16)
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(
        case(shape, d, use="bench", label=label, more=more)
        for shape, more, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**15 + 1, 2**16), torch.bfloat16, use="big", more=(7,)),
)


def given(tensors: dict) -> list:
    """Those of x0, x1, ... that are given."""
    return [tensors[name] for name in NAMES if tensors.get(name) is not None]


def begins(xs) -> list[int]:
    """The first column of each tensor in the result, and the end of the last one."""
    at = [0]
    for x in xs:
        at.append(at[-1] + x.shape[-1])
    return at


def reference(**xs):
    return torch.cat(given(xs), -1)


def inputs(c, device):
    tensors = {}
    for name, columns in zip(NAMES, (c.shape[-1], *c.param("more")), strict=False):
        like = replace(c, shape=(*c.shape[:-1], columns))
        if c.dtype.is_floating_point:
            tensors[name] = tensor(like, name, device)
        else:
            tensors[name] = tensor(like, name, device, dtype=torch.float32).mul(100).to(c.dtype)
    return tensors


def outputs(**xs):
    x, *_ = tensors = given(xs)
    return (TensorSpec.contiguous((*x.shape[:-1], begins(tensors)[-1]), x.dtype),)


def gradient(specs, gy):
    """Columns of gy: views, no kernel."""
    tensors = given(specs)
    at = begins(tensors)
    parts = (gy.narrow(-1, b, x.shape[-1]) for b, x in zip(at, tensors, strict=False))
    return dict(zip(NAMES, parts, strict=False))


def sharding(args, results):
    """Over any dimension except the last."""
    for d in range(args["x0"].ndim - 1):
        if args["x0"].shape[d] != 1:
            yield dict.fromkeys((*(n for n in NAMES if args.get(n) is not None), "y"), d)


def cost(**xs):
    read = tuple(x.nbytes for x in given(xs))
    return Cost(reads=(sum(read),), writes=(sum(read),))


FORWARD = Operator(
    name="cat",
    schema=f"(Tensor x0, {', '.join(f'Tensor? {name}=None' for name in NAMES[1:])}) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=sharding,
    exact=True,
    source="torch.cat",
)
