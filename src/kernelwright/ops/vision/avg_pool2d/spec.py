"""avg_pool2d: the mathematics. For images (*, H, W, C), y[o, p] is the sum of window (o, p), pixels
(o s - padding + i, p s - padding + j) for i, j below the kernel's size, divided by `divisor` or, if
that is 0, by the number of the window's pixels: those inside the padding if it counts
(`count_padding`), otherwise those inside the image. A window never extends past the padding.

The gradient of a pixel is the sum of gy over divisor for the windows that contain it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U
from kernelwright.ops.vision.images import sharding
from kernelwright.ops.vision.windows import made, windows

ONE, NONE = (1, 1), (0, 0)
DEFAULTS = {"stride": (2, 2), "padding": NONE, "ceil": False, "count_padding": True, "divisor": 0}
TWO, THREE = {"kernel": (2, 2)}, {"kernel": (3, 3), "padding": ONE}
INSIDE = {**THREE, "count_padding": False}
# (images, height, width, channels), parameters that differ from DEFAULTS
SHAPES = (
    ((2, 6, 8, 1), TWO),
    ((3, 9, 11, 1), THREE),
    ((2, 7, 6, 8), INSIDE),
    ((2, 5, 7, 8), {**TWO, "ceil": True}),
    ((2, 6, 5, 1), {**THREE, "ceil": True, "divisor": 7}),
    ((1, 9, 10, 5), {"kernel": (3, 2), "stride": (1, 3), "padding": (1, 0)}),
    ((3, 9, 16, 1), THREE),
    ((2, 6, 12, 1), {**THREE, "stride": ONE}),
    ((1, 1, 1, 1), {"kernel": ONE, "stride": ONE}),
    ((2, 9, 9, 1), {"kernel": (8, 7), "stride": (3, 5), "padding": (4, 0), "ceil": True}),
    ((0, 6, 8, 1), TWO),
    ((2, 4, 4, 0), TWO),
)
BENCH = (
    ((64 * 64, 112, 112, 1), THREE, "ResNet-D, after the first convolution"),
    ((64, 112, 112, 64), THREE, "the same, channels last"),
    ((32 * 256, 56, 56, 1), TWO, "DenseNet, a transition"),
    ((32, 56, 56, 256), TWO, "the same, channels last"),
)
CASES = (
    *(case(s, d, **more) for d in FLOATS for s, more in SHAPES),
    *(case((2, 6, 16, 1), d, layout="offset", **TWO) for d in FLOATS),
    *(
        case((2, 6, 8, 8), d, layout=layout, **TWO)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((3, 6, 16, 1), d, values=v, **THREE) for d in FLOATS for v in ("nan", "inf", "large")),
    *(
        case(shape, d, use="bench", label=label, **more)
        for shape, more, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 128, 128, 1), torch.bfloat16, use="big", **TWO),
)


def divisors(hw, kernel, stride, padding, ceil, count_padding, divisor, device):
    """The divisor of each window, (height, width, 1)."""
    out = made(hw, kernel, stride, padding, ONE, ceil)
    by = []
    for n, o, k, s, p in zip(hw, out, kernel, stride, padding, strict=True):
        first = torch.arange(o, device=device) * s - p
        end = (first + k).clamp(max=n + p)
        by.append(end - first if count_padding else end.clamp(max=n) - first.clamp(min=0))
    whole = (by[0][:, None] * by[1]).clamp(min=1)[..., None]
    return torch.full_like(whole, divisor) if divisor else whole


def reference(x, hw, kernel, stride, padding, ceil, count_padding, divisor):
    of = windows(x, kernel, stride, padding, ONE, ceil, fill=0.0)
    return of.sum(0) / divisors(hw, kernel, stride, padding, ceil, count_padding, divisor, x.device)


def backward_reference(gy, hw, kernel, stride, padding, ceil, count_padding, divisor):
    """Each window's part added to its rows, and those to its columns."""
    g = gy / divisors(hw, kernel, stride, padding, ceil, count_padding, divisor, gy.device)
    for axis, dim in enumerate((-3, -2)):
        shape = list(g.shape)
        shape[dim] = hw[axis]
        rows = g.new_zeros(shape)
        n, s = hw[axis], stride[axis]
        for i in range(kernel[axis]):
            at = i - padding[axis]  # where the first window has this element
            skipped = max(0, -(at // s))
            least = at + skipped * s
            count = min(g.shape[dim] - skipped, -((least - n) // s))
            if count > 0:
                every = [slice(None)] * g.ndim
                every[dim] = slice(least, least + (count - 1) * s + 1, s)
                rows[tuple(every)] += g.narrow(dim, skipped, count)
        g = rows
    return g


def arguments_of(c):
    return {"hw": c.shape[-3:-1], "kernel": c.param("kernel"),
            **{k: c.param(k, v) for k, v in DEFAULTS.items()}}  # fmt: skip


def inputs(c, device):
    return {"x": tensor(c, "x", device), **arguments_of(c)}


def backward_inputs(c, device):
    args = arguments_of(c)
    out = made(args["hw"], args["kernel"], args["stride"], args["padding"], ONE, args["ceil"])
    shape = (*c.shape[:-3], *out, c.shape[-1])
    return {"gy": tensor(replace(c, shape=shape), "gy", device), **args}


def outputs(x, hw, kernel, stride, padding, ceil, count_padding, divisor):
    out = made(hw, kernel, stride, padding, ONE, ceil)
    return (TensorSpec.contiguous((*x.shape[:-3], *out, x.shape[-1]), x.dtype),)


def backward_outputs(gy, hw, kernel, stride, padding, ceil, count_padding, divisor):
    return (TensorSpec.contiguous((*gy.shape[:-3], *hw, gy.shape[-1]), gy.dtype),)


def cost(x, **args):
    (y,) = outputs(x, **args)
    return Cost(reads=(x.nbytes,), writes=(y.nbytes,), flops=y.numel() * math.prod(args["kernel"]))


def backward_cost(gy, **args):
    flops = gy.numel() * math.prod(args["kernel"])
    return Cost((gy.nbytes,), (backward_outputs(gy, **args)[0].nbytes,), flops)


def noise(x, **args):
    """The rounding error of a sum of n terms in float32, one after another, divided: u n times the
    root of the sum of squares."""
    u, n = _unit(x), math.prod(args["kernel"])
    by = divisors(**args, device=x.device)
    return ((u * n * (reference(x.double().square(), **args) / by).sqrt()).nan_to_num(0, 0, 0),)


def backward_noise(gy, **args):
    n = math.prod(-(-k // s) for k, s in zip(args["kernel"], args["stride"], strict=True))
    by = divisors(**args, device=gy.device)
    squares = backward_reference(gy.double().square() / by, **args)
    return ((_unit(gy) * n * squares.sqrt()).nan_to_num(0, 0, 0),)


def _unit(x):
    return torch.finfo(torch.float64).eps if x.dtype == torch.float64 else U


_ARGS = (
    "int[] hw, int[] kernel, int[] stride, int[] padding, bool ceil, bool count_padding, "
    "int divisor"
)
FORWARD = Operator(
    name="avg_pool2d",
    schema=f"(Tensor x, {_ARGS}) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    noise=noise,
    sharding=sharding("x"),
    source="torch.nn.functional.avg_pool2d",
)
BACKWARD = Operator(
    name="avg_pool2d.backward",
    schema=f"(Tensor gy, {_ARGS}) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    noise=backward_noise,
    sharding=sharding("gy"),
    source="autograd of torch.nn.functional.avg_pool2d",
)
