"""sort: the mathematics. Each row in ascending or descending order, and its elements' positions.

The order is PyTorch's: NaN is greater than any number, -0.0 equals 0.0. The sort is always stable:
equal elements keep their order, in either direction. The gradient of an element is that of the
position to which it was moved.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.sharding import Rows, last_dimension

EVERY = (*FLOATS, torch.float64, torch.int64, torch.int32, torch.bool)
# dtypes that a case's id cannot name; given by `of`
SMALL = ("int16", "int8", "uint8")
BENCH = (
    ((2**28,), "one long row"),
    ((2**24,), ""),
    ((2**20,), ""),
    ((64, 128256), "logits of Llama 3's vocabulary, batch 64"),
    ((32768, 1024), ""),
    ((65536, 128), ""),
)
SHAPES = ((1,), (7,), (3, 0), (0, 5), (5, 33), (2, 3, 129))
CASES = (
    *(case(shape, d) for d in EVERY for shape in SHAPES),
    *(case((5, 33), torch.int32, of=of, descending=True) for of in SMALL),
    *(case((4, 66), d, values=v) for d in FLOATS for v in ("nan", "inf", "constant", "neginf_row")),
    *(case((4, 66), d, descending=True, values=v) for d in FLOATS for v in ("normal", "nan")),
    *(case((2, 500), d, descending=down, rounded=True) for d in FLOATS for down in (False, True)),
    *(case((2, 300), d, descending=True) for d in (torch.float64, torch.int64, torch.bool)),
    *(
        case((6, 40), d, layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    case((2, 2048), torch.float32),
    # several tiles
    case((20_001,), torch.float32),
    case((2, 9_001), torch.bfloat16, descending=True, rounded=True),
    *(
        case(shape, d, use="bench", label=label)
        for shape, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    *(case((2**24,), d, use="bench") for d in (torch.float64, torch.int64, torch.int32)),
    case((2**17 + 1, 16384), torch.bfloat16, use="big"),
)
# sort's kernels with one result: each type, several tiles, and cases that are timed
FEW = (
    *(case(shape, d) for d in EVERY for shape in ((7,), (5, 33))),
    *(case(shape, torch.float32) for shape in ((3, 0), (0, 5))),
    *(case((5, 33), torch.int32, of=of) for of in SMALL),
    *(case((4, 66), torch.float32, values=v) for v in ("nan", "inf", "constant")),
    *(case((6, 40), torch.bfloat16, layout=layout) for layout in ("sliced", "permuted", "offset")),
    case((20_001,), torch.float32, rounded=True),
    *(c for c in CASES if c.use != "verify"),
)
FLOATING = tuple(c for c in CASES if c.dtype.is_floating_point and not c.param("descending"))


def reference(x, descending=False):
    values, indices = x.sort(dim=-1, descending=descending, stable=True)
    return values, indices


def values_reference(x):
    return reference(x)[0]


def indices_reference(x, descending=False):
    return reference(x, descending)[1]


def backward_reference(gvalues, indices):
    return torch.zeros_like(gvalues).scatter(-1, indices, gvalues)


def _x(c, device):
    """`rounded`: many equal elements, including zeros of both signs."""
    if c.dtype.is_floating_point:
        x = tensor(c, "x", device)
        return x.round_() if c.param("rounded") and device != "meta" else x
    x = tensor(c, "x", device, dtype=torch.float32).mul(100)
    of = c.param("of")
    return x.gt(30) if c.dtype == torch.bool else x.to(getattr(torch, of) if of else c.dtype)


def inputs(c, device):
    return {"x": _x(c, device), "descending": c.param("descending", False)}


def backward_inputs(c, device):
    if device == "meta":
        indices = torch.empty(c.shape, dtype=torch.int64, device=device)
    else:
        indices = _x(c, device).argsort(dim=-1, stable=True)
        indices = indices.clone(memory_format=torch.contiguous_format)
    return {"gvalues": tensor(c, "gvalues", device), "indices": indices}


def outputs(x, descending=False):
    return TensorSpec.contiguous(x.shape, x.dtype), TensorSpec.contiguous(x.shape, torch.int64)


def values_are_those_of_x(args, results):
    """Identical to elements of x, not only equal: zeros have the right sign."""
    values, indices = results
    taken = args["x"].gather(-1, indices)
    same = (taken == values) & (torch.signbit(taken) == torch.signbit(values))
    if bool((same | (taken.isnan() & values.isnan())).all()):
        return None
    return "values are not the elements of x at indices"


FORWARD = Operator(
    name="sort",
    schema="(Tensor x, bool descending=False) -> (Tensor values, Tensor indices)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, descending=False: Cost(reads=(x.nbytes,), writes=(x.nbytes, 8 * x.numel())),
    outputs=outputs,
    layout="rows",
    properties={"places": values_are_those_of_x},
    sharding=Rows(last_dimension, main="x"),
    source="torch.sort(stable=True)",
)
VALUES = Operator(
    name="msort",
    schema="(Tensor x) -> (Tensor values)",
    reference=values_reference,
    inputs=lambda c, device: {"x": _x(c, device)},
    cases=FEW,
    cost=lambda x: Cost(reads=(x.nbytes,), writes=(x.nbytes,)),
    outputs=lambda x: (TensorSpec.contiguous(x.shape, x.dtype),),
    layout="rows",
    sharding=Rows(last_dimension, main="x"),
    source="torch.msort, of rows",
)
INDICES = Operator(
    name="argsort",
    schema="(Tensor x, bool descending=False) -> (Tensor indices)",
    reference=indices_reference,
    inputs=inputs,
    cases=FEW,
    cost=lambda x, descending=False: Cost(reads=(x.nbytes,), writes=(8 * x.numel(),)),
    outputs=lambda x, descending=False: (TensorSpec.contiguous(x.shape, torch.int64),),
    layout="rows",
    sharding=Rows(last_dimension, main="x"),
    source="torch.argsort(stable=True)",
)
BACKWARD = Operator(
    name="sort.backward",
    schema="(Tensor gvalues, Tensor indices) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=FLOATING,
    cost=lambda gvalues, indices: Cost(
        reads=(gvalues.nbytes, indices.nbytes), writes=(gvalues.nbytes,)
    ),
    outputs=lambda gvalues, indices: (TensorSpec.contiguous(gvalues.shape, gvalues.dtype),),
    layout="rows",
    sharding=Rows(last_dimension, main="gvalues"),
    source="autograd of torch.sort",
)
