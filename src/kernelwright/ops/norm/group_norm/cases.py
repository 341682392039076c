"""The cases on which group_norm is verified and timed: shape (N, C, L), and groups; `last`:
channels last."""

from __future__ import annotations

import torch

from kernelwright.contract import case
from kernelwright.contract.inputs import FLOATS, tensor

F32, F16, BF16 = FLOATS
# (N, C, L, groups)
SMALL = (
    (0, 4, 6, 2),
    (2, 4, 0, 2),
    (1, 1, 2, 1),
    (2, 4, 1, 2),
    (3, 6, 5, 3),
    (2, 10, 49, 2),
    (1, 30, 24, 3),
    (2, 8, 16, 8),
    (2, 40, 64, 4),
    (1, 64, 200, 32),
)
# layers of Stable Diffusion's UNet and its VAE, and of a ResNet with group_norm
BENCH = {
    (2, 320, 4096, 32): "SD 1.5 UNet, 64 x 64",
    (2, 640, 1024, 32): "SD 1.5 UNet, 32 x 32",
    (2, 1280, 256, 32): "SD 1.5 UNet, 16 x 16",
    (2, 1280, 16384, 32): "SDXL UNet, 128 x 128",
    (1, 512, 16384, 32): "SD VAE, 128 x 128",
    (1, 128, 262144, 32): "SD VAE, 512 x 512",
    (32, 256, 3136, 32): "ResNet-50 with group_norm, 56 x 56",
}


def _of(n, c, length, groups, dtype, last=False, **more):
    """A case with the dimensions of the main tensor in memory order."""
    shape = (n, length, c) if last else (n, c, length)
    return case(shape, dtype, groups=groups, **({"last": True} if last else {}), **more)


def _small(last):
    yield from (_of(*s, F32, last) for s in SMALL)
    for d in (F16, BF16):
        yield from (_of(*s, d, last) for s in (SMALL[5], SMALL[8]))
        yield from (_of(2, 32, 40, 4, d, last, values=v) for v in ("large", "nan", "inf"))
    yield _of(2, 32, 40, 4, F32, last, values="constant")
    for layout in ("sliced", "permuted", "offset", "expanded"):
        yield _of(2, 16, 24, 2, BF16, last, layout=layout)
    for parameters in ({"weight": "none"}, {"bias": "none"}, {"weight": "none", "bias": "none"},
                       {"weight": "float32"}):  # fmt: skip
        yield _of(2, 16, 24, 2, BF16, last, silu=True, **parameters)
    yield from (_of(2, 40, 64, 4, d, last, silu=True) for d in FLOATS)
    yield _of(2, 24, 40, 2, F32, last, eps=1.0)
    yield _of(1, 16, 4000, 2, BF16, last)
    yield _of(2, 16, 24, 2, F32, last, mean=30.0)


CASES = (
    *_small(False),
    *_small(True),
    *(
        _of(*shape, d, last, use="bench", label=label, silu=True)
        for shape, label in BENCH.items()
        for last in (False, True)
        for d in (BF16, F32)
    ),
    # with a mean, so that the statistics do not cancel to nearly zero
    *(_of(2, 1024, 2**20 + 8, 32, BF16, last, use="big", mean=1.0) for last in (False, True)),
)


def inputs(c, device):
    x = tensor(c, "x", device)
    return {
        "x": x.add_(c.param("mean")) if c.param("mean") else x,
        "weight": _parameter(c, "weight", device),
        "bias": _parameter(c, "bias", device),
        "groups": c.param("groups"),
        "eps": c.param("eps", 1e-5),
        "channels_last": c.param("last", False),
        "silu": c.param("silu", False),
    }


def backward_inputs(c, device):
    from .spec import group_norm

    args = inputs(c, device)
    wide = args["x"].to(torch.promote_types(c.dtype, torch.float32))
    eps, groups, last = args.pop("eps"), args["groups"], args["channels_last"]
    _, args["mean"], args["rstd"] = group_norm(wide, None, None, groups, eps, last)
    return {**args, "gy": tensor(c, "gy", device)}


def _parameter(c, name, device):
    """A parameter of the input's dtype, or float32 if the case says so; or None."""
    if c.param(name) == "none":
        return None
    dtype = torch.float32 if c.param("weight") == "float32" else c.dtype
    channels = c.shape[2 if c.param("last") else 1]
    return tensor(c, name, device, dtype=dtype, shape=(channels,))
