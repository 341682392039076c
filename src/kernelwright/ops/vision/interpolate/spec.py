"""interpolate, bilinear: the mathematics. Output (o, p) of images (*, H, W, C) is a mean of four
pixels,

    source(o) = o * scale, or max((o + 1/2) * scale - 1/2, 0) without `corners`,
    i = floor(source(o)), t = source(o) - i,  y[o] = (1 - t) x[i] + t x[min(i + 1, H - 1)],

along both dimensions, in float32 (float64 for float64). A dimension that keeps its size is not
changed: no pixel counts for another with a weight of 0, which would be NaN beside an infinity. The
scale is the number of input pixels per
output pixel: the quotient of the sizes, of the sizes minus one if corners are aligned, or the scale
arguments if `given`. The gradient of a pixel is the sum of gy over the outputs that use it, with
the same weights.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U
from kernelwright.ops.vision.images import sharding

# (images, height, width, channels), size, more
SHAPES = (
    ((2, 3, 5, 1), (6, 10), {}),
    ((3, 4, 8, 1), (8, 16), {"corners": True}),
    ((1, 1, 1, 1), (1, 1), {}),
    ((2, 9, 11, 1), (4, 5), {}),
    ((2, 3, 4, 1), (1, 7), {"corners": True}),
    ((1, 6, 4, 24), (12, 8), {}),
    ((2, 5, 3, 8), (7, 9), {"corners": True}),
    ((1, 3, 2, 5), (4, 4), {}),
    ((0, 3, 2, 1), (6, 4), {}),
    ((2, 3, 4, 0), (6, 8), {}),
)
BENCH = (
    ((16 * 256, 64, 64, 1), (128, 128), "a decoder, 256 channels to 128 x 128"),
    ((16, 64, 64, 256), (128, 128), "the same, channels last"),
    ((64 * 3, 512, 512, 1), (224, 224), "photographs to 224 x 224"),
    ((16 * 150, 64, 64, 1), (256, 256), "scores of a segmentation"),
)
SCALES = {"size": (8, 10), "scales": (0.6, 0.59)}
CASES = (
    *(case(s, d, size=size, **more) for d in FLOATS for s, size, more in SHAPES),
    *(
        case((2, 4, 6, 8), d, size=(8, 12), layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((3, 4, 8, 1), d, size=(8, 16), values=v) for d in FLOATS for v in ("nan", "inf")),
    *(case((2, 5, 6, c), torch.float32, **SCALES) for c in (1, 8)),
    *(
        case((2, 5, 6, 1), d, size=size, values=v)
        for d in FLOATS
        for size in ((5, 9), (7, 6), (5, 6))
        for v in ("nan", "inf")
    ),
    *(
        case(shape, d, use="bench", label=label, size=size)
        for shape, size, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 128, 128, 1), torch.bfloat16, use="big", size=(64, 96)),
)


def step(source: int, size: int, corners: bool, given: bool, said: float) -> float:
    """Input pixels per output pixel."""
    if corners:
        return (source - 1) / (size - 1) if size > 1 else 0.0
    return said if given else source / size


def sources(source, size, corners, given, said, device, dtype):
    """(first pixel, second pixel, weight of the second) of each output along a dimension; None if
    it keeps its size."""
    if source == size:
        return None
    scale = torch.full((), step(source, size, corners, given, said), dtype=dtype, device=device)
    o = torch.arange(size, dtype=dtype, device=device)
    at = o * scale if corners else ((o + 0.5) * scale - 0.5).clamp(min=0)
    first = at.long().clamp(max=source - 1)
    return first, (first + 1).clamp(max=source - 1), at - first


def _along(x, dim, axis):
    if axis is None:
        return x
    first, second, t = axis
    t = t.to(x.dtype).view(-1, *(1,) * (-1 - dim))
    return (1 - t) * x.index_select(dim, first) + t * x.index_select(dim, second)


def _added(g, dim, axis, source):
    if axis is None:
        return g
    first, second, t = axis
    t = t.to(g.dtype).view(-1, *(1,) * (-1 - dim))
    shape = list(g.shape)
    shape[dim] = source
    return g.new_zeros(shape).index_add(dim, first, (1 - t) * g).index_add(dim, second, t * g)


def _axes(x, hw, size, corners, given, scale_h, scale_w, dtype):
    each = zip(hw, size, (scale_h, scale_w), strict=True)
    return [sources(n, m, corners, given, s, x.device, dtype) for n, m, s in each]


def interpolated(x, hw, size, corners, given, scale_h, scale_w, dtype):
    """Columns first, because PyTorch applies the weights of rows last."""
    h, w = _axes(x, hw, size, corners, given, scale_h, scale_w, dtype)
    return copied(_along(_along(x, -2, w), -3, h), h, w)


def backward_of(gy, hw, size, corners, given, scale_h, scale_w, dtype):
    h, w = _axes(gy, hw, size, corners, given, scale_h, scale_w, dtype)
    return copied(_added(_added(gy, -3, h, hw[0]), -2, w, hw[1]), h, w)


def copied(t, h, w):
    """A result of its own if nothing was to be computed."""
    return t.clone(memory_format=torch.contiguous_format) if h is None and w is None else t


def keeps(hw, size) -> bool:
    """Whether a dimension keeps its size."""
    return any(n == m for n, m in zip(hw, size, strict=True))


def reference(x, hw, size, corners, given, scale_h, scale_w):
    return interpolated(x, hw, size, corners, given, scale_h, scale_w, x.dtype)


def backward_reference(gy, hw, size, corners, given, scale_h, scale_w):
    return backward_of(gy, hw, size, corners, given, scale_h, scale_w, gy.dtype)


def arguments_of(c):
    scales = c.param("scales")
    h, w = scales or (0.0, 0.0)
    return {
        "hw": c.shape[-3:-1],
        "size": c.param("size"),
        "corners": c.param("corners", False),
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


def noise(x, **args):
    """The rounding error of two means in float32: of the weights, which have the error of the
    source, u times its magnitude, and of the products and sums. A result is a continuous function
    of the source, so it does not matter between which pixels a rounded source lies."""
    size = x.double().abs().nan_to_num(0, 0, 0)
    magnitude = reference(size, **args)
    largest = size.amax((-3, -2), keepdim=True) if size.numel() else magnitude
    return (U * (8 * magnitude + 2 * max(args["hw"]) * largest),)


def backward_noise(gy, **args):
    """The same, plus that of a sum of n terms: u n times the root of the sum of squares."""
    n = backward_reference(torch.ones_like(gy, dtype=torch.float64), **args)
    size = gy.double().abs().nan_to_num(0, 0, 0)
    squares = backward_reference(size.square(), **args)
    largest = size.amax((-3, -2), keepdim=True) if size.numel() else squares
    weights = 2 * max(args["hw"]) * n * largest
    return (U * (8 * (n + 1) * squares.sqrt() + weights),)


_ARGS = "int[] hw, int[] size, bool corners, bool given, float scale_h, float scale_w"
FORWARD = Operator(
    name="interpolate",
    schema=f"(Tensor x, {_ARGS}) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, size, **_: Cost((x.nbytes,), (_resized(x, size).nbytes,)),
    outputs=lambda x, size, **_: (_resized(x, size),),
    layout="rows",
    noise=noise,
    sharding=sharding("x"),
    source="torch.nn.functional.interpolate, mode bilinear",
)
BACKWARD = Operator(
    name="interpolate.backward",
    schema=f"(Tensor gy, {_ARGS}) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=lambda gy, hw, **_: Cost((gy.nbytes,), (_resized(gy, hw).nbytes,)),
    outputs=lambda gy, hw, **_: (_resized(gy, hw),),
    layout="rows",
    noise=backward_noise,
    sharding=sharding("gy"),
    source="autograd of torch.nn.functional.interpolate, mode bilinear",
)
