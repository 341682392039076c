"""gather and scatter_add: the mathematics. Both select elements of a tensor along its next-to-last
dimension.

    gather:       y[a, m, c] = x[a, index[a, m, c], c]
    scatter_add:  y = x, and src[a, m, c] is added to y[a, index[a, m, c], c]

x is (*lead, n, c); index and src are (*lead, m, c). Each is the gradient of the other: the gradient
of x in gather adds gy to zeros; that of src in scatter_add gathers gy.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.rounding import U

# Defaults of a case's parameters: 6 random int64 indices per fiber.
DEFAULTS = {"m": 6, "numbers": "random", "index": torch.int64}
SHAPES = (
    ((2, 9, 8), {}),
    ((3, 7, 5), {"m": 2, "index": torch.int32}),
    ((1, 1, 1), {"m": 1}),
    ((4, 600, 1), {"m": 40}),
    ((5, 33), {"m": 300, "numbers": "zipf"}),
    ((2, 0, 3), {"m": 0}),
    ((2, 5, 3), {"m": 0}),
    ((2, 3, 4, 24), {"m": 5, "numbers": "equal"}),
)
SPOILT = ((2, 9, 8), {"m": 16})
BENCH = (
    ((4096, 4096, 1), {"m": 4096}, "along rows of 4096"),
    ((1, 65536, 768), {"m": 65536}, "along columns of 65536"),
    ((8192, 128256, 1), {"m": 1}, "the logit of each token's target"),
    ((32768, 256, 1), {"m": 8}, "8 of 256 experts' scores"),
)
BIG = ((2**20 + 1, 2**11, 1), {"m": 3})


def cases(more: tuple[torch.dtype, ...] = ()):
    shape, params = SPOILT
    return (
        *(case(s, d, **p) for d in (*FLOATS, *more) for s, p in SHAPES),
        *(
            case(shape, d, layout=layout, **params)
            for d in FLOATS
            for layout in ("sliced", "permuted", "offset", "expanded")
        ),
        *(case(shape, d, values=v, **params) for d in FLOATS for v in ("large", "nan", "inf")),
        *(
            case(s, d, use="bench", label=label, **p)
            for s, p, label in BENCH
            for d in (torch.bfloat16, torch.float32)
        ),
        case(BIG[0], torch.bfloat16, use="big", **BIG[1]),
    )


def index_of(c, device):
    """The case's indices; `zipf`: index k has a frequency of about 1 / (k + 1)."""
    said = {**DEFAULTS, **dict(c.params)}
    *lead, n, columns = c.shape
    shape = (*lead, said["m"], columns)
    draw = torch.rand(shape, generator=generator(c.seed + 7, device), device=device)
    indices = {
        "random": lambda: draw * n,
        "equal": lambda: torch.full_like(draw, min(2, n - 1)),
        "zipf": lambda: float(n) ** draw - 1,
    }[said["numbers"]]()
    return indices.long().clamp(0, max(n - 1, 0)).to(said["index"])


def _of_numbers(c, name, device):
    """A tensor of the shape of the index, with the layout and values of the case."""
    *lead, _, columns = c.shape
    shape = (*lead, {**DEFAULTS, **dict(c.params)}["m"], columns)
    return _values(c, name, device, shape)


def _values(c, name, device, shape):
    if c.dtype.is_floating_point:
        return tensor(replace(c, shape=shape), name, device)
    return tensor(replace(c, shape=shape), name, device, dtype=torch.float32).mul(100).to(c.dtype)


def inputs(c, device):
    index = index_of(c, device)
    return {"x": _values(c, "x", device, c.shape), "index": index, "n": c.shape[-2]}


def backward_inputs(c, device):
    return {
        "gy": _of_numbers(c, "gy", device),
        "index": index_of(c, device),
        "n": c.shape[-2],
    }


def add_inputs(c, device):
    x, src = tensor(c, "x", device), _of_numbers(c, "src", device)
    return {"x": x, "index": index_of(c, device), "src": src}


def add_backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), "index": index_of(c, device)}


def reference(x, index, n):
    return torch.gather(x, -2, index)


def backward_reference(gy, index, n):
    return gy.new_zeros(*gy.shape[:-2], n, gy.shape[-1]).scatter_add(-2, index, gy)


def add_reference(x, index, src):
    return x.scatter_add(-2, index, src)


def add_backward_reference(gy, index):
    return torch.gather(gy, -2, index)


def _noise(x, index, src):
    """The rounding error of an element's sum of n + 1 terms in float32, for a tree: u sqrt(log2 n)
    times the root of the sum of squares (Higham, Accuracy and Stability of Numerical Algorithms,
    4.2, with independent rounding errors)."""
    u = torch.finfo(torch.float64).eps if x.dtype == torch.float64 else U
    square = x.double().square().scatter_add(-2, index, src.double().square())
    count = torch.ones_like(square).scatter_add(-2, index, torch.ones_like(src, dtype=square.dtype))
    return (u * count.clamp_min(2).log2().sqrt() * square.sqrt(),)


def backward_noise(gy, index, n):
    return _noise(gy.new_zeros(*gy.shape[:-2], n, gy.shape[-1]), index, gy)


def _placed(x, index, n):
    return (TensorSpec.contiguous((*index.shape[:-2], n, index.shape[-1]), x.dtype),)


def _numbered(x, index):
    return (TensorSpec.contiguous(index.shape, x.dtype),)


def _cost(x, index, numel):
    """The indices once, and the selected elements once each, at most as many as there are."""
    named = min(index.numel(), numel)
    writes = (index.numel() * x.itemsize,)
    return Cost(reads=(named * x.itemsize, index.nbytes), writes=writes)


def along(*names):
    """The sharding rule: every dimension except the one along which elements are selected."""

    def rule(args, results):
        shape = args["index"].shape
        for d in range(len(shape)):
            if d != len(shape) - 2 and shape[d] != 1:
                yield dict.fromkeys(names, d)

    return rule


GATHER = Operator(
    name="gather",
    schema="(Tensor x, Tensor index, int n) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=cases(more=(torch.int64,)),
    cost=lambda x, index, n: _cost(x, index, x.numel()),
    outputs=lambda x, index, n: _numbered(x, index),
    layout="rows",
    sharding=along("x", "index", "y"),
    exact=True,
    source="torch.gather",
)
GATHER_BACKWARD = Operator(
    name="gather.backward",
    schema="(Tensor gy, Tensor index, int n) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=cases(),
    cost=lambda gy, index, n: Cost(
        reads=(gy.nbytes, index.nbytes),
        writes=(_placed(gy, index, n)[0].nbytes,),
        flops=gy.numel(),
    ),
    outputs=lambda gy, index, n: _placed(gy, index, n),
    layout="rows",
    sharding=along("gy", "index", "gx"),
    noise=backward_noise,
    source="autograd of torch.gather",
)
SCATTER_ADD = Operator(
    name="scatter_add",
    schema="(Tensor x, Tensor index, Tensor src) -> (Tensor y)",
    reference=add_reference,
    inputs=add_inputs,
    cases=cases(),
    cost=lambda x, index, src: Cost(
        reads=(x.nbytes, src.nbytes, index.nbytes), writes=(x.nbytes,), flops=src.numel()
    ),
    outputs=lambda x, index, src: (TensorSpec.contiguous(x.shape, x.dtype),),
    layout="rows",
    sharding=along("x", "index", "src", "y"),
    noise=_noise,
    source="torch.scatter_add",
)
SCATTER_ADD_BACKWARD = Operator(
    name="scatter_add.backward",
    schema="(Tensor gy, Tensor index) -> (Tensor gsrc)",
    reference=add_backward_reference,
    inputs=add_backward_inputs,
    cases=cases(),
    cost=lambda gy, index: _cost(gy, index, gy.numel()),
    outputs=lambda gy, index: _numbered(gy, index),
    layout="rows",
    sharding=along("gy", "index", "gsrc"),
    exact=True,
    source="autograd of torch.scatter_add",
)
