"""permute_copy: the mathematics. y[..., i_dims[0], i_dims[1], ...] = x[..., i_0, i_1, ...].

`dims` permutes the last dimensions, counted from the end; those before them keep their positions.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import tensor

EVERY = (torch.float32, torch.bfloat16, torch.float64, torch.int64)
SWAP, TURN, HEADS = (-1, -2), (-1, -3, -2), (-4, -2, -3, -1)
SHAPES = (
    ((1, 1), SWAP),
    ((3, 0), SWAP),
    ((5, 33), SWAP),
    ((64, 96), SWAP),
    ((3, 40, 72), SWAP),
    ((2, 3, 128), (-3, -2, -1)),
    ((7, 24, 40), TURN),
    ((4, 5, 6), (-2, -1, -3)),
    ((2, 7, 4, 16), HEADS),
    ((2, 3, 4, 5, 6), (-1, -3, -5, -2, -4)),
    ((9,), (-1,)),
)
# (shape, dims)
BENCH = (
    ((8192, 8192), SWAP, "a matrix"),
    ((16, 4096, 1024), SWAP, "a batch of matrices"),
    ((64, 56, 56, 256), (-4, -1, -3, -2), "NHWC to NCHW"),
    ((64, 256, 56, 56), (-4, -2, -1, -3), "NCHW to NHWC"),
    ((8, 4096, 32, 128), HEADS, "tokens and heads of attention"),
    ((8191, 8191), SWAP, "odd sizes"),
)
CASES = (
    *(case(shape, d, dims=dims) for d in EVERY for shape, dims in SHAPES),
    *(case((6, 40), torch.float16, dims=SWAP, values=v) for v in ("normal", "nan", "inf")),
    *(
        case((3, 64, 40), d, dims=dims, layout=layout)
        for d in (torch.float32, torch.bfloat16)
        for dims in (SWAP, TURN)
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(
        case(shape, d, use="bench", label=label, dims=dims)
        for shape, dims, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 16384), torch.bfloat16, use="big", dims=SWAP),
)


def order_of(ndim: int, dims) -> tuple[int, ...]:
    """The permutation of all dimensions, counted from the front."""
    kept = range(ndim - len(dims))
    return (*kept, *(d + ndim for d in dims))


def reference(x, dims):
    return x.permute(order_of(x.ndim, dims)) + 0


def inputs(c, device):
    if c.dtype.is_floating_point:
        x = tensor(c, "x", device)
    else:
        x = tensor(c, "x", device, dtype=torch.float32).mul(100).to(c.dtype)
    return {"x": x, "dims": c.param("dims")}


def outputs(x, dims):
    return (TensorSpec.contiguous([x.shape[d] for d in order_of(x.ndim, dims)], x.dtype),)


def gradient(specs, gy):
    """gy with its dimensions moved back: a view, no kernel."""
    dims = specs["dims"]
    back = [dims.index(d) - len(dims) for d in range(-len(dims), 0)]
    return {"x": gy.permute(order_of(gy.ndim, back))}


def sharding(args, results):
    """Over any dimension, which is another one in the result."""
    x = args["x"]
    for place, d in enumerate(order_of(x.ndim, args["dims"])):
        if x.shape[d] != 1:
            yield {"x": d, "y": place}


def cost(x, dims):
    n = x.numel() * x.itemsize
    return Cost(reads=(n,), writes=(n,))


FORWARD = Operator(
    name="permute_copy",
    schema="(Tensor x, int[] dims) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    sharding=sharding,
    exact=True,
    source="torch.permute_copy",
)
