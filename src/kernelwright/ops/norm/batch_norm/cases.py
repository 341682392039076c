"""The cases on which batch_norm is verified and timed: shape (N, C, L); `last`: channels last."""

from __future__ import annotations

import torch

from kernelwright.contract import case
from kernelwright.contract.inputs import FLOATS, tensor

F32, F16, BF16 = FLOATS
# (N, C, L)
SMALL = ((0, 4, 6), (2, 3, 1), (1, 1, 2), (3, 5, 49), (4, 16, 24), (2, 40, 200))
# layers of ResNet-50, batch 256
BENCH = {
    (256, 64, 12544): "ResNet-50, 112 x 112",
    (256, 256, 3136): "ResNet-50, 56 x 56",
    (256, 512, 784): "ResNet-50, 28 x 28",
    (256, 1024, 196): "ResNet-50, 14 x 14",
    (256, 2048, 49): "ResNet-50, 7 x 7",
    (32, 256, 3136): "ResNet-50, 56 x 56, batch 32",
}


def _of(n, c, length, dtype, last=False, **more):
    """A case with the dimensions of the main tensor in memory order."""
    shape = (n, length, c) if last else (n, c, length)
    return case(shape, dtype, **({"last": True} if last else {}), **more)


def _small(last):
    yield from (_of(*s, F32, last) for s in SMALL)
    yield from (_of(4, 16, 24, d, last) for d in (F16, BF16))
    yield from (_of(4, 16, 24, BF16, last, values=v) for v in ("large", "nan", "inf", "constant"))
    yield from (_of(2, 16, 24, BF16, last, layout=x)
                for x in ("sliced", "permuted", "offset", "expanded"))  # fmt: skip
    for parameters in ({"weight": "none", "bias": "none"}, {"weight": "none"}, {"bias": "none"},
                       {"weight": "float32"}):  # fmt: skip
        yield _of(4, 16, 24, BF16, last, **parameters)
    yield _of(4, 16, 24, BF16, last, eps=1.0)
    yield _of(70, 8, 40, BF16, last)
    yield _of(4, 16, 24, F32, last, mean=30.0)
    yield _of(4, 16, 24, F32, last, std=1e-8)  # of which 1 / sqrt(var + eps) tells nothing


def _few(last):
    """A few cases, for steps that several operators share."""
    yield from (_of(*s, F32, last) for s in (SMALL[0], SMALL[3]))
    yield from (_of(4, 16, 24, d, last) for d in (F16, BF16))
    yield from (_of(4, 16, 24, BF16, last, values=v) for v in ("large", "nan", "inf"))
    yield from (_of(2, 16, 24, BF16, last, layout=x)
                for x in ("sliced", "permuted", "offset", "expanded"))  # fmt: skip
    yield _of(4, 16, 24, BF16, last, weight="none", bias="none")
    yield _of(4, 16, 24, BF16, last, weight="float32")


def _timed(shapes):
    return (
        _of(*shape, d, last, use="bench", label=BENCH[shape])
        for shape in shapes
        for last in (False, True)
        for d in (BF16, F32)
    )


# with a mean, so that neither the statistics nor the sums of the backward cancel to nearly zero
_BIG = tuple(_of(2**11, 64, 2**14 + 8, BF16, last, use="big", mean=1.0) for last in (False, True))
CASES = (*_small(False), *_small(True), *_timed(BENCH), *_BIG)
FEW = (*_few(False), *_few(True), *_timed(tuple(BENCH)[1:2]), *_BIG)


def stats_inputs(c, device):
    x = tensor(c, "x", device, scale=c.param("std", 1.0))
    x = x.add_(c.param("mean")) if c.param("mean") else x
    return {"x": x, "channels_last": c.param("last", False)}


def inputs(c, device):
    return {
        **stats_inputs(c, device),
        "weight": _parameter(c, "weight", device),
        "bias": _parameter(c, "bias", device),
        "eps": c.param("eps", 1e-5),
    }


def backward_inputs(c, device):
    args = inputs(c, device)
    args.pop("eps")
    return {**args, **_statistics(c, args), "gy": _gradient(c, args["x"], device)}


def inference_inputs(c, device):
    mean, var = (_statistic(c, name, device) for name in ("mean", "var"))
    return {**inputs(c, device), "mean": mean, "var": var.square() + 0.1}


def inference_backward_inputs(c, device):
    args = inference_inputs(c, device)
    return {**args, "gy": _gradient(c, args["x"], device)}


def reduce_inputs(c, device):
    args = stats_inputs(c, device)
    return {**args, **_statistics(c, args), "gy": _gradient(c, args["x"], device)}


def elemt_inputs(c, device):
    args = reduce_inputs(c, device)
    total = tensor(c, "total", device, dtype=torch.float32, shape=(_channels(c), 2), scale=0.1)
    return {**args, "weight": _parameter(c, "weight", device), "total": total}


def _gradient(c, x, device):
    """gy; if x has a mean, correlated with x."""
    gy = tensor(c, "gy", device)
    return gy.add_(x) if c.param("mean") else gy


def _channels(c):
    return c.shape[2 if c.param("last") else 1]


def _statistics(c, args):
    """mean and rstd of the case's x, in float32."""
    from .spec import batch_norm

    wide = args["x"].to(torch.promote_types(c.dtype, torch.float32))
    _, mean, rstd, _ = batch_norm(wide, None, None, 1e-5, args["channels_last"])
    return {"mean": mean, "rstd": rstd}


def _statistic(c, name, device):
    return tensor(c, name, device, dtype=torch.float32, shape=(_channels(c),))


def _parameter(c, name, device):
    """A parameter of the input's dtype, or float32 if the case says so; or None."""
    if c.param(name) == "none":
        return None
    dtype = torch.float32 if c.param("weight") == "float32" else c.dtype
    return tensor(c, name, device, dtype=dtype, shape=(_channels(c),))
