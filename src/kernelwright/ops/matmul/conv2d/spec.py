"""conv2d: the mathematics. y[n, p, q, o] = bias[o] + the sum over r, s, c of x[n, h, w, c]
weight[o, r, s, c] with h = p stride - padding + r dilation, and w likewise, over the terms inside
the image.

The operator's tensors have channels last; the public function takes them in PyTorch's order.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, chain_noise, tensor_core_noise
from kernelwright.ops.matmul.gemm.spec import stored

F32, _, BF16 = FLOATS
ONE = (1, 1)


def _of(x, dtype, out, filter, stride=ONE, padding=(0, 0), dilation=ONE, **params) -> Case:
    return case(x, dtype, out=out, filter=filter, stride=stride, padding=padding,
                dilation=dilation, **params)  # fmt: skip


def _verified(d: torch.dtype) -> tuple[Case, ...]:
    return (
        _of((2, 9, 7, 16), d, 24, (3, 3), padding=ONE, bias=True),
        _of((1, 12, 12, 8), d, 70, (3, 3), stride=(2, 2), padding=(1, 2)),
        _of((3, 5, 6, 24), d, 8, ONE),
        _of((1, 11, 13, 8), d, 5, (2, 3), dilation=(2, 3), padding=(3, 1)),
        _of((1, 16, 16, 3), d, 16, (5, 5), stride=(3, 1), padding=(2, 2), bias=True),
        _of((1, 1, 1, 8), d, 1, ONE),
        _of((0, 5, 5, 8), d, 4, (3, 3)),
        _of((2, 5, 5, 8), d, 0, (3, 3)),
        _of((2, 4, 4, 0), d, 3, ONE, bias=True),
        *(_of((2, 6, 6, 16), d, 9, (3, 3), layout=x) for x in ("sliced", "permuted", "offset")),
        *(_of((1, 6, 6, 8), d, 9, (3, 3), padding=ONE, values=v) for v in ("large", "nan", "inf")),
    )


CASES = (
    *(c for d in FLOATS for c in _verified(d)),
    _of((32, 56, 56, 64), BF16, 64, (3, 3), padding=ONE, use="bench", label="ResNet-50, stage 1"),
    _of((32, 14, 14, 256), BF16, 256, (3, 3), padding=ONE, use="bench",
        label="ResNet-50, stage 3"),
    _of((32, 224, 224, 16), BF16, 768, (16, 16), stride=(16, 16), use="bench",
        label="patches of a vision transformer"),
    _of((2**15 + 1, 16, 16, 256), BF16, 1, ONE, use="big"),
)  # fmt: skip


def size(length: int, filter: int, stride: int, padding: int, dilation: int) -> int:
    """The number of results along a dimension."""
    return (length + 2 * padding - dilation * (filter - 1) - 1) // stride + 1


def reference(x, weight, bias, stride, padding, dilation):
    if 0 in (x.shape[3], weight.shape[0]):
        shape = outputs(x, weight, bias, stride, padding, dilation)[0].shape
        return x.new_zeros(shape) + (0 if bias is None else bias)
    y = F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias, stride, padding, dilation)
    return y.permute(0, 2, 3, 1)


def inputs(c, device):
    channels, (rows, cols), out = c.shape[3], c.param("filter"), c.param("out")
    scale = max(rows * cols * channels, 1) ** -0.5
    return {
        "x": tensor(c, "x", device),
        "weight": tensor(c, "weight", device, shape=(out, rows, cols, channels), scale=scale),
        "bias": tensor(c, "bias", device, shape=(out,)) if c.param("bias") else None,
        "stride": c.param("stride"),
        "padding": c.param("padding"),
        "dilation": c.param("dilation"),
    }


def outputs(x, weight, bias, stride, padding, dilation):
    of = zip(x.shape[1:3], weight.shape[1:3], stride, padding, dilation, strict=True)
    shape = (x.shape[0], *(size(*each) for each in of), weight.shape[0])
    return (TensorSpec.contiguous(shape, x.dtype),)


def cost(x, weight, bias, stride, padding, dilation):
    (y,) = outputs(x, weight, bias, stride, padding, dilation)
    given = (t for t in (x, weight, bias) if t is not None)
    return Cost(tuple(map(stored, given)), (y.nbytes,), 2 * y.numel() * math.prod(weight.shape[1:]))


def noise(x, weight, bias, stride, padding, dilation):
    """The noise of a product with as many terms as the filter has elements, plus that of the
    bias."""
    k = math.prod(weight.shape[1:])
    given = stride, padding, dilation
    squares = reference(x.double().square(), weight.double().square(), None, *given)
    total = reference(x.double(), weight.double(), None, *given)
    if x.dtype == F32:
        size = chain_noise(k, squares, total)
    else:
        size = tensor_core_noise(k, squares)
    y = total if bias is None else total + bias.double()
    return ((U * (size + y.abs())).nan_to_num(0, 0, 0),)


OPERATOR = Operator(
    name="conv2d",
    schema="(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation)"
    " -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="torch.nn.functional.conv2d, channels last",
)


def public(x, weight, bias, stride, padding, dilation):
    """The arguments of the public function."""
    channels_second = (t.permute(0, 3, 1, 2) for t in (x, weight))
    return (*channels_second, bias, stride, padding, dilation), {}
