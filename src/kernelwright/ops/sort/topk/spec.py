"""topk: the mathematics. The k largest (or smallest) elements of each row, in order, and their
positions.

NaN is greater than any number, -0.0 equals 0.0, and equal elements are in the order of their
positions. The gradient is that of the selected elements; all others get zeros.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.sharding import Rows, last_dimension

# (rows, columns), k
BENCH = (
    ((1, 128256), 50, "Llama 3's vocabulary"),
    ((64, 128256), 50, "Llama 3's vocabulary, batch 64"),
    ((4096, 128256), 50, "Llama 3's vocabulary, batch 4096"),
    ((64, 128256), 8, ""),
    ((8192, 256), 8, "experts"),
)
SHAPES = (
    ((1,), 1),
    ((7,), 7),
    ((5, 33), 4),
    ((3, 0), 0),
    ((0, 5), 2),
    ((2, 3, 129), 64),
    ((4, 1000), 33),
    ((2, 5000), 20),
    ((1, 9001), 600),
    ((9, 16), 0),
)
CASES = (
    *(case(shape, d, k=k) for d in (*FLOATS, torch.float64) for shape, k in SHAPES),
    *(case((4, 66), d, values=v, k=5) for d in FLOATS for v in ("nan", "inf", "constant")),
    *(
        case((4, 66), d, values=v, k=5, largest=False)
        for d in FLOATS
        for v in ("normal", "nan", "neginf_row")
    ),
    *(
        case((6, 40), d, layout=layout, k=3)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    case((2, 3000), torch.float32, k=9, rising=True),
    *(
        case(shape, d, use="bench", label=label, k=k)
        for shape, k, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 16384), torch.bfloat16, use="big", k=4),
)


def reference(x, columns, k, largest=True):
    # on a GPU, PyTorch sorts a NaN with a sign bit differently
    x = torch.where(x.isnan(), torch.nan, x) if x.is_floating_point() else x
    values, indices = x.sort(dim=-1, descending=largest, stable=True)
    return values[..., :k], indices[..., :k]


def backward_reference(gvalues, indices, columns):
    gx = gvalues.new_zeros(*gvalues.shape[:-1], columns)
    return gx.scatter(-1, indices, gvalues)


def _x(c, device):
    x = tensor(c, "x", device)
    return x.sort(-1).values if c.param("rising") and device != "meta" else x


def inputs(c, device):
    x = _x(c, device)
    return {
        "x": x,
        "columns": x.shape[-1],
        "k": c.param("k"),
        "largest": c.param("largest", True),
    }


def backward_inputs(c, device):
    k = c.param("k")
    if device == "meta":
        indices = torch.empty((*c.shape[:-1], k), dtype=torch.int64, device=device)
    else:
        indices = reference(_x(c, device), c.shape[-1], k)[1]
        indices = indices.clone(memory_format=torch.contiguous_format)
    g = tensor(c, "gvalues", device, shape=tuple(indices.shape))
    return {"gvalues": g, "indices": indices, "columns": c.shape[-1]}


def outputs(x, columns, k, largest=True):
    shape = (*x.shape[:-1], k)
    return TensorSpec.contiguous(shape, x.dtype), TensorSpec.contiguous(shape, torch.int64)


def cost(x, columns, k, largest=True):
    chosen = x.numel() // max(columns, 1) * k
    return Cost(reads=(x.nbytes,), writes=(chosen * (x.itemsize + 8),))


FORWARD = Operator(
    name="topk",
    schema="(Tensor x, int columns, int k, bool largest=True) -> (Tensor values, Tensor indices)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(last_dimension, main="x"),
    source="torch.topk, with stable ties",
)
BACKWARD = Operator(
    name="topk.backward",
    schema="(Tensor gvalues, Tensor indices, int columns) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=tuple(c for c in CASES if c.param("largest", True)),
    cost=lambda gvalues, indices, columns: Cost(
        reads=(gvalues.nbytes + indices.nbytes,),
        writes=(gvalues.numel() // max(gvalues.shape[-1], 1) * columns * gvalues.itemsize,),
    ),
    outputs=lambda gvalues, indices, columns: (
        TensorSpec.contiguous((*gvalues.shape[:-1], columns), gvalues.dtype),
    ),
    layout="rows",
    sharding=Rows(last_dimension, main="gvalues"),
    source="autograd of torch.topk",
)
