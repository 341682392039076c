"""upsample_nearest2d: the mathematics. For images (*, H, W, C), y[o, p] = x[source(o), source(p)],
where source(o) = min(floor(o * scale), H - 1) in float32 and scale is the number of input pixels
per output pixel: input size over output size, or the scale arguments if `given`.

The gradient of a pixel is the sum of gy over the outputs that copy it, a rectangle.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U
from kernelwright.ops.vision.images import sharding

# (images, height, width, channels), size
SHAPES = (
    ((2, 3, 5, 1), (6, 10)),
    ((3, 4, 8, 1), (8, 16)),
    ((2, 4, 4, 1), (16, 16)),
    ((2, 5, 7, 1), (8, 16)),
    ((1, 1, 1, 1), (1, 1)),
    ((2, 9, 11, 1), (4, 5)),
    ((1, 6, 4, 24), (12, 8)),
    ((2, 5, 3, 8), (7, 9)),
    ((1, 3, 2, 5), (4, 4)),
    ((0, 3, 2, 1), (6, 4)),
    ((2, 3, 4, 0), (6, 8)),
)
BENCH = (
    ((32 * 256, 64, 64, 1), (128, 128), "U-Net, 256 channels to 128 x 128"),
    ((32, 64, 64, 256), (128, 128), "the same, channels last"),
    ((16 * 64, 100, 100, 1), (250, 250), "two and a half times"),
    ((8 * 512, 28, 28, 1), (112, 112), "four times"),
)


def cases():
    return (
        *(case(s, d, size=size) for d in FLOATS for s, size in SHAPES),
        *(
            case((2, 4, 6, 8), d, size=(8, 12), layout=layout)
            for d in FLOATS
            for layout in ("sliced", "permuted", "offset", "expanded")
        ),
        *(case((2, 4, 8, 1), d, size=(8, 16), layout="offset") for d in FLOATS),
        *(case((3, 4, 8, 1), d, size=(8, 16), values=v) for d in FLOATS for v in ("nan", "inf")),
        case((2, 5, 6, 1), torch.float32, size=(8, 10), scales=(0.6, 0.59)),
        case((2, 5, 6, 8), torch.float32, size=(8, 10), scales=(0.6, 0.59)),
        *(
            case(shape, d, use="bench", label=label, size=size)
            for shape, size, label in BENCH
            for d in (torch.bfloat16, torch.float32)
        ),
        case((2**17 + 1, 128, 128, 1), torch.bfloat16, use="big", size=(128, 144)),
    )


CASES = cases()


def scale(source: int, size: int, given: bool, said: float) -> float:
    """Input pixels per output pixel."""
    return said if given else source / size


def places(source: int, size: int, given: bool, said: float, device) -> torch.Tensor:
    """The pixel that each output copies, along a dimension."""
    step = torch.full((), scale(source, size, given, said), dtype=torch.float32, device=device)
    o = torch.arange(size, dtype=torch.float32, device=device)
    return (o * step).long().clamp(max=source - 1)


def reference(x, hw, size, given, scale_h, scale_w):
    rows = places(hw[0], size[0], given, scale_h, x.device)
    columns = places(hw[1], size[1], given, scale_w, x.device)
    return x.index_select(-3, rows).index_select(-2, columns)


def backward_reference(gy, hw, size, given, scale_h, scale_w):
    for dim, source, of, said in ((-3, hw[0], size[0], scale_h), (-2, hw[1], size[1], scale_w)):
        shape = list(gy.shape)
        shape[dim] = source
        at = places(source, of, given, said, gy.device)
        gy = gy.new_zeros(shape).index_add(dim, at, gy)
    return gy


def arguments_of(c):
    scales = c.param("scales")
    h, w = scales or (0.0, 0.0)
    return {
        "hw": c.shape[-3:-1],
        "size": c.param("size"),
        "given": scales is not None,
        "scale_h": h,
        "scale_w": w,
    }


def inputs(c, device):
    return {"x": tensor(c, "x", device), **arguments_of(c)}


def backward_inputs(c, device):
    shape = (*c.shape[:-3], *c.param("size"), c.shape[-1])
    return {"gy": tensor(replace(c, shape=shape), "gy", device), **arguments_of(c)}


def _resized(t, size):
    return TensorSpec.contiguous((*t.shape[:-3], *size, t.shape[-1]), t.dtype)


def outputs(x, hw, size, given, scale_h, scale_w):
    return (_resized(x, size),)


def backward_outputs(gy, hw, size, given, scale_h, scale_w):
    return (_resized(gy, hw),)


def cost(x, hw, size, given, scale_h, scale_w):
    return Cost(reads=(x.nbytes,), writes=(_resized(x, size).nbytes,))


def backward_cost(gy, hw, size, given, scale_h, scale_w):
    return Cost(reads=(gy.nbytes,), writes=(_resized(gy, hw).nbytes,), flops=gy.numel())


def noise(gy, hw, size, given, scale_h, scale_w):
    """The rounding error of a sum of n terms in float32, one after another: u n times the root of
    the sum of squares."""
    squares = backward_reference(gy.double().square(), hw, size, given, scale_h, scale_w)
    n = backward_reference(torch.ones_like(gy, dtype=torch.float64), hw, size, given,
                           scale_h, scale_w)  # fmt: skip
    u = torch.finfo(torch.float64).eps if gy.dtype == torch.float64 else U
    return ((u * n * squares.sqrt()).nan_to_num(0, 0, 0),)


_ARGS = "int[] hw, int[] size, bool given, float scale_h, float scale_w"
FORWARD = Operator(
    name="upsample_nearest2d",
    schema=f"(Tensor x, {_ARGS}) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=sharding("x"),
    exact=True,
    source="torch.nn.functional.interpolate, mode nearest",
)
BACKWARD = Operator(
    name="upsample_nearest2d.backward",
    schema=f"(Tensor gy, {_ARGS}) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    sharding=sharding("gy"),
    noise=noise,
    source="autograd of torch.nn.functional.interpolate, mode nearest",
)
