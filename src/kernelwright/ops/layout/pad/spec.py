"""pad: the mathematics. y is `value` except for a box that contains x: element (i, j) of x is
element (i + before_i, j + before_j) of y.

`pad` is in PyTorch's order: (before, after) for the last dimension, then for the one before it, and
so on; no number is negative.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor

ROW, COLUMN, FRAME = (1, 2), (0, 0, 0, 3), (1, 1, 1, 1)
# (shape, pad, value)
SHAPES = (
    ((5, 8), ROW, 0.0),
    ((3, 16), (8, 8), -1.5),
    ((1, 1), (0, 1), 0.5),
    ((2, 40, 8), COLUMN, 0.0),
    ((2, 3, 6, 7), FRAME, 0.0),
    ((2, 3, 4, 5), (0, 1, 2, 0, 1, 1), 2.0),
    ((2, 0, 3), (1, 1, 1, 1), 3.0),
    ((9,), (8, 4), float("-inf")),
    ((70, 3, 40), (8, 16), 0.0),
)
BENCH = (
    ((64, 64, 224, 224), FRAME, "a frame of one around images"),
    ((64, 256, 56, 56), FRAME, "a frame of one around 56 x 56"),
    ((32768, 4000), (0, 96), "rows to a multiple of 128"),
    ((32, 1000, 4096), (0, 0, 0, 24), "tokens to a multiple of 128"),
)
CASES = (
    *(case(shape, d, pad=pad, value=v) for d in FLOATS for shape, pad, v in SHAPES),
    *(case((6, 40), d, pad=ROW, values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    *(
        case((3, 6, 40), d, pad=(8, 8, 1, 0), layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(
        case(shape, d, use="bench", label=label, pad=pad)
        for shape, pad, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 16384), torch.bfloat16, use="big", pad=(3, 5)),
)


def amounts(ndim: int, pad) -> list[tuple[int, int]]:
    """(before, after) of each dimension, starting with the first."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return [(0, 0)] * (ndim - len(pairs)) + pairs[::-1]


def reference(x, pad, value=0.0):
    return torch.nn.functional.pad(x, list(pad), value=value)


def inputs(c, device):
    return {"x": tensor(c, "x", device), "pad": c.param("pad"), "value": c.param("value", 0.0)}


def outputs(x, pad, value=0.0):
    around = amounts(x.ndim, pad)
    shape = [n + before + after for n, (before, after) in zip(x.shape, around, strict=True)]
    return (TensorSpec.contiguous(shape, x.dtype),)


def gradient(specs, gy):
    """The box of gy: a view, no kernel."""
    around = amounts(gy.ndim, specs["pad"])
    for d, (before, after) in enumerate(around):
        gy = gy.narrow(d, before, gy.shape[d] - before - after)
    return {"x": gy}


def sharding(args, results):
    """Over the dimensions that are not padded."""
    x = args["x"]
    for d, around in enumerate(amounts(x.ndim, args["pad"])):
        if around == (0, 0) and x.shape[d] != 1:
            yield {"x": d, "y": d}


def cost(x, pad, value=0.0):
    return Cost(reads=(x.nbytes,), writes=(outputs(x, pad)[0].nbytes,))


FORWARD = Operator(
    name="pad",
    schema="(Tensor x, int[] pad, float value=0.0) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    sharding=sharding,
    exact=True,
    source="torch.nn.functional.pad",
)
