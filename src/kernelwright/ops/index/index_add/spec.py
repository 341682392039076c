"""index_add: the mathematics. y = x, and alpha * source[i] is added to y[index[i]] for each i.

R rows of D elements, N of which are added. gx is gy; gsource[i] = alpha * gy[index[i]].
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U
from kernelwright.ops.embedding.lookup.spec import INDICES, indices_of

assert INDICES[0] == "random"
DEFAULT = (33,)
SHAPES = (
    ((40, 24), {}),
    ((7, 5), {"n": (20,)}),
    ((1, 1), {"n": (1,)}),
    ((3, 1000), {"n": (5,)}),
    ((40, 24), {"n": (0,)}),
    ((5, 0), {"n": (3,)}),
    ((0, 8), {"n": (0,)}),
    ((600, 4), {"n": (1500,), "indices": "zipf"}),
)
SWEEP = (
    {"indices": "equal", "n": (300,)},
    {"indices": "sorted", "n": (90,), "index": torch.int32},
    {"indices": "once", "n": (40,)},
    {"alpha": -0.5},
)
BENCH = (
    ((65536, 768), {"n": (262144,)}, "262,144 rows into 65,536"),
    ((65536, 768), {"n": (262144,), "indices": "zipf"}, "words' frequencies"),
    ((65536, 768), {"n": (512,)}, "few rows"),
    ((1024, 768), {"n": (262144,)}, "many rows into few"),
)
CASES = (
    *(case(shape, d, **params) for d in FLOATS for shape, params in SHAPES),
    *(case((40, 24), d, **params) for d in (torch.float32, torch.bfloat16) for params in SWEEP),
    *(
        case((40, 24), d, layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((40, 24), d, values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    *(
        case(shape, d, use="bench", label=label, **params)
        for shape, params, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**19 + 1, 4096), torch.bfloat16, use="big", n=(2**10 + 3,)),
)


def reference(x, index, source, alpha=1.0):
    return x.index_add(0, index, alpha * source)


def backward_reference(gy, index, alpha=1.0):
    return alpha * gy[index]


def _index(c, device):
    said = c if c.param("n") else replace(c, params=(*c.params, ("n", DEFAULT)))
    return indices_of(said, device)


def inputs(c, device):
    index = _index(c, device)
    source = tensor(replace(c, shape=(index.numel(), c.shape[1])), "source", device)
    alpha = c.param("alpha", 1.0)
    return {"x": tensor(c, "x", device), "index": index, "source": source, "alpha": alpha}


def backward_inputs(c, device):
    alpha = c.param("alpha", 1.0)
    return {"gy": tensor(c, "gy", device), "index": _index(c, device), "alpha": alpha}


def noise(x, index, source, alpha=1.0):
    """The rounding error of a row's sum of n + 1 terms in float32, for a tree: u sqrt(log2 n) times
    the root of the sum of squares (Higham, Accuracy and Stability of Numerical Algorithms, 4.2,
    with independent rounding errors)."""
    u = torch.finfo(torch.float64).eps if x.dtype == torch.float64 else U
    square = x.double().square().index_add(0, index, (alpha * source.double()).square())
    count = torch.bincount(index, minlength=x.shape[0]) + 1
    return (u * count.clamp_min(2).log2().sqrt()[:, None] * square.sqrt(),)


FORWARD = Operator(
    name="index_add",
    schema="(Tensor x, Tensor index, Tensor source, float alpha=1.0) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, index, source, alpha=1.0: Cost(
        reads=(x.nbytes, source.nbytes + index.nbytes), writes=(x.nbytes,), flops=source.numel()
    ),
    outputs=lambda x, index, source, alpha=1.0: (TensorSpec.contiguous(x.shape, x.dtype),),
    layout="rows",
    noise=noise,
    source="torch.index_add",
)
BACKWARD = Operator(
    name="index_add.backward",
    schema="(Tensor gy, Tensor index, float alpha=1.0) -> (Tensor gsource)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=lambda gy, index, alpha=1.0: Cost(
        reads=(min(index.numel(), gy.shape[0]) * gy.shape[1] * gy.itemsize + index.nbytes,),
        writes=(index.numel() * gy.shape[1] * gy.itemsize,),
        flops=index.numel() * gy.shape[1],
    ),
    outputs=lambda gy, index, alpha=1.0: (
        TensorSpec.contiguous((index.numel(), gy.shape[1]), gy.dtype),
    ),
    layout="rows",
    source="autograd of torch.index_add",
)
