"""grouped_mm: the mathematics. The rows of a are in groups; each group is multiplied by its own
matrix.

`grouped_swiglu` is the first half of a mixture-of-experts layer: silu(a g) (a u) for each group,
where g and u are the halves of its matrix.
"""

from __future__ import annotations

import itertools

import torch
from torch.nn import functional as F

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.rounding import U, chain_noise, tensor_core_noise
from kernelwright.ops.elementwise import _activations
from kernelwright.ops.matmul.gemm.spec import stored

F32, F16, BF16 = FLOATS
# (rows of all groups, n, k, groups)
SHAPES = (
    (200, 80, 64, 4),
    (64, 64, 128, 1),
    (33, 40, 104, 7),
    (130, 144, 64, 3),
    (5, 8, 16, 9),  # more groups than rows
    (9, 3, 5, 2),
    (1, 16, 24, 1),
)
EMPTY = ((0, 16, 24, 3), (6, 0, 24, 2), (6, 16, 0, 2), (0, 16, 24, 1))
LAYOUTS = ("sliced", "permuted", "offset", "expanded")
EXPERTS = {
    (16384, 28672, 4096, 8): "Mixtral 8x7B gate and up, 8,192 tokens",
    (16384, 4096, 14336, 8): "Mixtral 8x7B down, 8,192 tokens",
    (65536, 1536, 2048, 128): "Qwen3-30B-A3B gate and up, 8,192 tokens",
    (512, 1536, 2048, 128): "Qwen3-30B-A3B gate and up, 64 tokens",
}


def _of(rows: int, n: int, k: int, groups: int, dtype: torch.dtype, **params) -> Case:
    return case((rows, k), dtype, groups=groups, n=n, **params)


CASES = (
    *(_of(*s, d, along=along) for d in FLOATS for along in "kn" for s in (*SHAPES, *EMPTY)),
    *(_of(70, 48, 64, 3, d, along="k", layout=x) for d in FLOATS for x in LAYOUTS),
    *(_of(70, 48, 64, 3, d, along="k", values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    *(_of(*s, BF16, along="k", use="bench", label=label) for s, label in EXPERTS.items()),
    _of(2**21 + 1, 64, 1024, 4, BF16, along="k", use="big"),
)
SWIGLU_CASES = tuple(c for c in CASES if c.param("along") == "k" and c.param("n") % 2 == 0)


def ends(c: Case, device: str) -> torch.Tensor:
    """Random ends of groups, of which the last is the last row. Some groups may be empty."""
    count, rows = c.param("groups"), c.shape[0]
    if device == "meta":
        return torch.empty(count, dtype=torch.int32, device=device)
    g = generator(c.seed + count, "cpu")
    cuts = torch.randint(rows + 1, (count - 1,), generator=g).sort().values
    return torch.cat((cuts, torch.tensor([rows]))).to(torch.int32).to(device)


def inputs(c, device):
    (_, k), n, groups = c.shape, c.param("n"), c.param("groups")
    shape = (groups, k, n) if c.param("along") == "n" else (groups, n, k)
    b = tensor(c, "b", device, shape=shape, scale=max(k, 1) ** -0.5)
    b = b if c.param("along") == "n" else b.mT
    return {"a": tensor(c, "a", device), "b": b, "offsets": ends(c, device)}


def reference(a, b, offsets):
    bounds = [0, *offsets.tolist()]
    pairs = itertools.pairwise(bounds)
    return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(pairs)])


def outputs(a, b, offsets):
    return (TensorSpec.contiguous((a.shape[0], b.shape[2]), a.dtype),)


def cost(a, b, offsets):
    (c,) = outputs(a, b, offsets)
    return _cost(a, b, offsets, c, 2 * c.numel() * a.shape[1])


def _cost(a, b, offsets, c, products):
    given = (stored(a), stored(b), offsets.numel() * 4)
    return Cost(given, (c.nbytes,), products)


def noise(a, b, offsets):
    return (_noise(a, b, offsets),)


def _noise(a, b, offsets):
    """As for matmul: a chain of k multiply-adds for float32, tensor cores' for 16-bit operands."""
    k = a.shape[1]
    squares = reference(a.double().square(), b.double().square(), offsets)
    if a.dtype != F32:
        return U * tensor_core_noise(k, squares)
    return U * chain_noise(k, squares, reference(a.double(), b.double(), offsets))


OPERATOR = Operator(
    name="grouped_mm",
    schema="(Tensor a, Tensor b, Tensor offsets) -> (Tensor c)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="torch.nn.functional.grouped_mm",
)


def swiglu_reference(a, b, offsets):
    gate, up = reference(a, b, offsets).chunk(2, -1)
    return F.silu(gate) * up


def swiglu_outputs(a, b, offsets):
    return (TensorSpec.contiguous((a.shape[0], b.shape[2] // 2), a.dtype),)


def swiglu_cost(a, b, offsets):
    (y,) = swiglu_outputs(a, b, offsets)
    return _cost(a, b, offsets, y, 4 * y.numel() * a.shape[1])


def swiglu_noise(a, b, offsets):
    """The noise of both products, each times its factor, and the rounding error of each step."""
    gate, up = reference(a.double(), b.double(), offsets).chunk(2, -1)
    of_gate, of_up = _noise(a, b, offsets).chunk(2, -1)
    h = _activations.silu(gate)
    of_h = of_gate * _activations.silu_slope(gate).abs() + _activations.silu_noise(gate)
    bound = of_h * up.abs() + of_up * h.abs() + U * (h * up).abs()
    return (bound.nan_to_num(0, 0, 0),)


SWIGLU = Operator(
    name="grouped_swiglu",
    schema="(Tensor a, Tensor b, Tensor offsets) -> (Tensor y)",
    reference=swiglu_reference,
    inputs=inputs,
    cases=SWIGLU_CASES,
    cost=swiglu_cost,
    outputs=swiglu_outputs,
    layout="any",
    noise=swiglu_noise,
    source="Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202, of each expert",
)
