"""max_pool2d: the mathematics. For images (*, H, W, C), y[o, p] is the greatest pixel of window (o,
p), pixels (o s - padding + i dilation, p s - padding + j dilation) for i, j below the kernel's
size, of those inside the image. NaN is greater than any number.

`at` is the index of this pixel in its window: i * width + j, the first of equal pixels, the last of
NaNs, in one byte if the window has no more than 256 pixels. It has no elements without `keep`. The
gradient of a pixel is the sum of gy over the windows that selected it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.rounding import U
from kernelwright.ops.vision.images import sharding
from kernelwright.ops.vision.windows import made, windows

ONE, NONE = (1, 1), (0, 0)
DEFAULTS = {"stride": (2, 2), "padding": NONE, "dilation": ONE, "ceil": False, "keep": True}
TWO, THREE = {"kernel": (2, 2)}, {"kernel": (3, 3), "padding": ONE}
# (images, height, width, channels), parameters that differ from DEFAULTS
SHAPES = (
    ((2, 6, 8, 1), TWO),
    ((3, 9, 11, 1), THREE),
    ((2, 7, 6, 8), THREE),
    ((2, 5, 7, 8), {**TWO, "ceil": True}),
    ((2, 7, 5, 1), {**THREE, "ceil": True, "keep": False}),
    ((1, 9, 10, 5), {"kernel": (3, 2), "stride": (1, 3), "padding": (1, 0), "dilation": (2, 3)}),
    ((3, 9, 16, 1), THREE),
    ((2, 6, 12, 1), {**THREE, "stride": ONE}),
    ((1, 1, 1, 1), {"kernel": ONE, "stride": ONE}),
    ((1, 20, 20, 1), {"kernel": (17, 16), "stride": (3, 4)}),
    ((0, 6, 8, 1), TWO),
    ((2, 4, 4, 0), TWO),
)
BENCH = (
    ((64 * 64, 112, 112, 1), THREE, "ResNet-50, after the first convolution"),
    ((64, 112, 112, 64), THREE, "the same, channels last"),
    ((32 * 128, 112, 112, 1), TWO, "VGG, stage 2"),
    ((32, 112, 112, 128), TWO, "the same, channels last"),
)
CASES = (
    *(case(s, d, **more) for d in FLOATS for s, more in SHAPES),
    *(case((2, 6, 16, 1), d, layout="offset", **TWO) for d in FLOATS),
    *(
        case((2, 6, 8, 8), d, layout=layout, **TWO)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(
        case((3, 6, 16, 1), d, values=v, **THREE)
        for d in FLOATS
        for v in ("nan", "inf", "constant", "neginf_row")
    ),
    *(
        case(shape, d, use="bench", label=label, **more)
        for shape, more, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 128, 128, 1), torch.bfloat16, use="big", **TWO),
)  # fmt: skip


def index_dtype(kernel) -> torch.dtype:
    return torch.uint8 if math.prod(kernel) <= 256 else torch.int32


def chosen(of: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """The index of the greatest pixel of each window; `there`: the pixels that are inside."""
    number = torch.arange(1, 1 + len(of), device=of.device).view(-1, *(1,) * (of.ndim - 1))
    greatest = (of == of.amax(0)) & there
    rank = torch.where(of.isnan(), len(of) + number, greatest * (1 + len(of) - number))
    return rank.argmax(0)


def reference(x, hw, kernel, stride, padding, dilation, ceil, keep):
    geometry = (kernel, stride, padding, dilation, ceil)
    of = windows(x, *geometry)
    inside = windows(x.new_ones((*hw, 1)), *geometry, fill=0.0) > 0
    at = chosen(of.detach(), inside.view(len(of), *(1,) * (x.ndim - 3), *inside.shape[1:]))
    y = of.gather(0, at[None])[0]
    return y, at.to(index_dtype(kernel)) if keep else at.new_empty(0, dtype=index_dtype(kernel))


def backward_reference(gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    """Each gy is added to the pixel that its window's index selects."""
    geometry = (kernel, stride, padding, dilation, ceil)
    shape = (*gy.shape[:-3], *hw, gy.shape[-1])
    pixels = torch.arange(math.prod(hw), device=gy.device).view(*hw, 1)
    numbers = windows(pixels.double(), *geometry, fill=-1.0).long()
    numbers = numbers.view(len(numbers), *(1,) * (gy.ndim - 3), *numbers.shape[1:])
    index = numbers.expand(len(numbers), *gy.shape).gather(0, at.long()[None])[0]
    flat = gy.new_zeros(*shape[:-3], math.prod(hw), shape[-1])
    flat = flat.scatter_add(-2, index.flatten(-3, -2), gy.flatten(-3, -2))
    return flat.view(shape)


def places(at, hw, kernel, stride, padding, dilation):
    """PyTorch's indices, of pixels in their images, from indices of pixels in their windows."""
    coordinates = []
    for axis, of in enumerate((at // kernel[1], at % kernel[1])):
        dim = axis - 3
        window = torch.arange(at.shape[dim], device=at.device) * stride[axis] - padding[axis]
        coordinates.append(of * dilation[axis] + window.view(-1, *(1,) * (-1 - dim)))
    return coordinates[0] * hw[1] + coordinates[1]


def arguments_of(c):
    return {"hw": c.shape[-3:-1], "kernel": c.param("kernel"),
            **{k: c.param(k, v) for k, v in DEFAULTS.items()}}  # fmt: skip


def inputs(c, device):
    return {"x": tensor(c, "x", device), **arguments_of(c)}


def backward_inputs(c, device):
    args = {**arguments_of(c), "keep": True}
    geometry = [args[k] for k in ("hw", "kernel", "stride", "padding", "dilation", "ceil")]
    shape = (*c.shape[:-3], *made(*geometry), c.shape[-1])
    dtype = index_dtype(args["kernel"])
    if device == "meta" or 0 in shape:
        at = torch.empty(shape, dtype=dtype, device=device)
    else:
        x = torch.randn(c.shape, generator=generator(c.seed + 5, device), device=device)
        at = reference(x, **args)[1] if x.numel() < 2**28 else _any_inside(shape, dtype, device)
    return {"gy": tensor(replace(c, shape=shape), "gy", device), "at": at, **args}


def _any_inside(shape, dtype, device):
    """Indices of pixels in windows of four pixels that are all inside."""
    return torch.randint(4, shape, dtype=dtype, device=device)


def _result(x, hw, kernel, stride, padding, dilation, ceil):
    out = made(hw, kernel, stride, padding, dilation, ceil)
    return TensorSpec.contiguous((*x.shape[:-3], *out, x.shape[-1]), x.dtype)


def outputs(x, hw, kernel, stride, padding, dilation, ceil, keep):
    y = _result(x, hw, kernel, stride, padding, dilation, ceil)
    return y, TensorSpec.contiguous(y.shape if keep else (0,), index_dtype(kernel))


def backward_outputs(gy, at, hw, kernel, stride, padding, dilation, ceil, keep):
    return (TensorSpec.contiguous((*gy.shape[:-3], *hw, gy.shape[-1]), gy.dtype),)


def cost(**args):
    y, at = outputs(**args)
    return Cost(reads=(args["x"].nbytes,), writes=(y.nbytes, at.nbytes))


def backward_cost(**args):
    reads = args["gy"].nbytes, args["at"].numel() * args["at"].itemsize
    return Cost(reads=reads, writes=(backward_outputs(**args)[0].nbytes,))


def noise(gy, **args):
    """The rounding error of a sum of up to n terms in float32: u n times the root of the sum of
    squares, where n is the number of windows that contain a pixel."""
    u = torch.finfo(torch.float64).eps if gy.dtype == torch.float64 else U
    n = math.prod(-(-k // s) for k, s in zip(args["kernel"], args["stride"], strict=True))
    squares = backward_reference(gy.double().square(), **args)
    return ((u * n * squares.sqrt()).nan_to_num(0, 0, 0),)


_ARGS = "int[] hw, int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil, bool keep"
FORWARD = Operator(
    name="max_pool2d",
    schema=f"(Tensor x, {_ARGS}) -> (Tensor y, Tensor at)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=sharding("x"),
    source="torch.nn.functional.max_pool2d",
)
BACKWARD = Operator(
    name="max_pool2d.backward",
    schema=f"(Tensor gy, Tensor at, {_ARGS}) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=tuple(c for c in CASES if c.param("keep", True)),
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    noise=noise,
    sharding=sharding("gy"),
    source="autograd of torch.nn.functional.max_pool2d",
)
