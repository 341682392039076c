"""embedding: the mathematics. y[i] = weight[indices[i]]; gweight[r] adds gy[i] for indices[i] = r.

The row padding_idx, if there is one, has no gradient. V rows of D elements, N indices.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.sharding import Rows

INDICES = ("random", "equal", "sorted", "zipf", "once")
# Defaults of a case's parameters: 33 random int64 indices, no padding.
DEFAULTS = {"n": (33,), "indices": "random", "index": torch.int64, "padding": -1}
SHAPES = (
    ((40, 24), {}),
    ((7, 5), {"n": (2, 3, 4)}),
    ((1, 1), {"n": (1,)}),
    ((3, 1000), {"n": (5,)}),
    ((40, 24), {"n": ()}),
    ((40, 24), {"n": (0,)}),
    ((5, 0), {"n": (3,)}),
    ((0, 8), {"n": (0,)}),
    ((600, 4), {"n": (3000,), "indices": "zipf"}),
    ((9, 200), {"n": (70,)}),
)
SWEEP = (
    {"padding": 3},
    {"padding": 3, "indices": "equal"},
    {"indices": "equal", "n": (700,)},
    {"indices": "sorted", "n": (9, 40), "index": torch.int32},
    {"indices": "zipf", "n": (300,)},
    {"indices": "once", "n": (40,)},
)
BENCH = (
    *(((65536, d), {"n": (262144,)}, "") for d in (32, 128, 768, 4096)),
    ((65536, 768), {"n": (262144,), "indices": "zipf"}, "words' frequencies"),
    ((50257, 768), {"n": (32, 1024), "indices": "zipf"}, "GPT-2, 32 x 1024 tokens"),
    ((128256, 4096), {"n": (4, 2048), "indices": "zipf"}, "Llama 3 8B, 4 x 2048 tokens"),
)
CASES = (
    *(case(shape, d, **params) for d in FLOATS for shape, params in SHAPES),
    *(
        case((40, 24), d, **params)
        for d in (torch.float32, torch.bfloat16)
        for params in SWEEP
    ),
    # all numbers of digits that sorting uses: one, two of eight bits, two of nine, three
    *(case((v, 1), torch.float32, n=(400,)) for v in (400, 5000, 70_000, 300_000)),
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
    case((65536, 768), torch.float16, use="bench", n=(262144,)),
    case((2**19 + 1, 4096), torch.bfloat16, use="big", n=(2**19 + 3,)),
)  # fmt: skip


def reference(weight, indices, num_weights, padding_idx):
    y = weight[indices]
    return torch.where((indices == padding_idx)[..., None], y.detach(), y)


def backward_reference(gy, indices, num_weights, padding_idx):
    rows = gy.reshape(indices.numel(), gy.shape[-1])
    flat = indices.reshape(-1).long()
    kept = flat != padding_idx
    gweight = gy.new_zeros(num_weights, gy.shape[-1])
    return gweight.index_add(0, flat[kept], rows[kept])


def indices_of(c, device):
    """The case's indices. `zipf`: the row of rank k has a frequency of about 1 / k, like words; the
    most frequent one is a tenth or more of all."""
    said = {**DEFAULTS, **dict(c.params)}
    n, v = math.prod(said["n"]), max(c.shape[0], 1)
    draw = torch.rand(
        n, generator=generator(c.seed + 7, device), device=device, dtype=torch.float64
    )
    indices = {
        "random": lambda: draw * v,
        "sorted": lambda: draw.sort().values * v,
        "equal": lambda: torch.full_like(draw, min(3, v - 1)),
        "zipf": lambda: v**draw - 1,
        "once": lambda: draw.argsort() % v,
    }[said["indices"]]()
    return indices.long().clamp(0, v - 1).to(said["index"]).reshape(said["n"])


def _common(c, device):
    return {
        "indices": indices_of(c, device),
        "num_weights": c.shape[0],
        "padding_idx": c.param("padding", -1),
    }


def inputs(c, device):
    return {"weight": tensor(c, "weight", device), **_common(c, device)}


def backward_inputs(c, device):
    args = _common(c, device)
    shape = (*args["indices"].shape, c.shape[1])
    return {"gy": tensor(replace(c, shape=shape), "gy", device), **args}


def outputs(weight, indices, num_weights, padding_idx):
    return (TensorSpec.contiguous((*indices.shape, weight.shape[1]), weight.dtype),)


def backward_outputs(gy, indices, num_weights, padding_idx):
    return (TensorSpec.contiguous((num_weights, gy.shape[-1]), gy.dtype),)


def public(weight, indices, num_weights, padding_idx):
    return (indices, weight), {"padding_idx": padding_idx if padding_idx >= 0 else None}


def cost(weight, indices, num_weights, padding_idx):
    """The rows that are written, and the different rows that are looked up, once each: how many
    differ depends on the data, so the expected number for N draws out of V is used. Rows that are
    read again from cache cost nothing here; a kernel that reads them again from memory has a lower
    share of the roof."""
    n, row = indices.numel(), weight.shape[1] * weight.itemsize
    touched = num_weights * -math.expm1(n * math.log1p(-1 / num_weights)) if num_weights > 1 else 1
    return Cost(reads=(int(touched) * row + indices.nbytes,), writes=(n * row,))


def backward_cost(gy, indices, num_weights, padding_idx):
    """gy and the indices read once, the whole gradient written once."""
    gradient = num_weights * gy.shape[-1] * gy.itemsize
    return Cost(reads=(gy.nbytes + indices.nbytes,), writes=(gradient,), flops=gy.numel())


def backward_noise(gy, indices, num_weights, padding_idx):
    """The rounding error of float32 in a row's sum of n terms: u sqrt(log2 n) ||g|| for a tree
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2, with independent rounding
    errors)."""
    u = torch.finfo(torch.float64 if gy.dtype == torch.float64 else torch.float32).eps / 2
    square = backward_reference(gy.double().square(), indices, num_weights, padding_idx)
    ones = gy.new_ones((*indices.shape, 1), dtype=torch.float64)
    count = backward_reference(ones, indices, num_weights, padding_idx)
    return (u * count.clamp_min(2).log2().sqrt() * square.sqrt(),)


def padding_is_zero(args, results):
    """The padding row's gradient is zero."""
    row = args["padding_idx"]
    wrong = row >= 0 and bool(results[0][row].any())
    return "the padding row has a gradient" if wrong else None


FORWARD = Operator(
    name="embedding",
    schema="(Tensor weight, Tensor indices, int num_weights, int padding_idx=-1) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(main="indices", dims={"y": 1}, whole=("weight",)),
    exact=True,
    source="torch.nn.functional.embedding",
)
BACKWARD = Operator(
    name="embedding.backward",
    schema="(Tensor gy, Tensor indices, int num_weights, int padding_idx=-1) -> (Tensor gweight)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    sharding=Rows(main="indices", dims={"gy": 1}, summed=("gweight",)),
    noise=backward_noise,
    properties={"the padding row has no gradient": padding_is_zero},
    source="autograd of torch.nn.functional.embedding",
)
