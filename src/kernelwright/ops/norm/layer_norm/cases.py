"""The cases on which the norm operators are verified and timed."""

from __future__ import annotations

import torch

from kernelwright.contract import case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor

# (rows, columns): hidden sizes of GPT-2 and Llama 3, and of the tables that quack and Liger
# publish.
BENCH = {
    (32768, 256): "short rows",
    (32768, 1024): "GPT-2 medium hidden",
    (16384, 4096): "Llama 3 8B hidden",
    (8192, 8192): "Llama 3 70B hidden",
    (8192, 16384): "Llama 3 405B hidden",
    (4096, 65536): "",
    (2048, 131072): "",
    (4096, 768): "GPT-2 hidden, small",
}
ADD_BENCH = ((32768, 1024), (16384, 4096), (8192, 8192), (8192, 16384), (2048, 131072), (4096, 768))
LAYER_PARAMS = {"eps": 1e-5, "weight": "same"}
RMS_PARAMS = {"eps": 1e-6, "weight": "same"}


def _bench(shapes, params):
    return tuple(
        case(shape, d, use="bench", label=BENCH[shape], **params)
        for shape in shapes
        for d in (torch.bfloat16, torch.float32)
    )


def _full(params, sweep, most, less):
    """All cases in dtype `most`; in the others, which differ only by conversions, a few cases."""
    few = (((5, 33), "contiguous"), ((4, 1000), "contiguous"), ((6, 40), "sliced"))
    return (
        *adversarial(dtypes=(most,), **params),
        *(case(s, d, layout=x, **params) for d in less for s, x in few),
        *(case((4, 1000), d, values=v, **params) for d in less for v in ("large", "nan", "inf")),
        *_swept(params, sweep),
        *(case((3, 5000), d, **params) for d in FLOATS),
        *(case((300, 64), d, **params) for d in FLOATS),  # more rows than programs, backward
        *(case((16, 512), d, **params) for d in (most, less[0])),  # whole tiles of whole vectors
        *_long(params),
        *_bench(BENCH, params),
        case((2**18 + 1, 8192), torch.bfloat16, use="big", **params),
    )


def _swept(params, sweep):
    """Further parameters, on a row of whole vectors."""
    dtypes = torch.float32, torch.bfloat16
    return tuple(case((4, 3, 64), d, **{**params, **more}) for more in sweep for d in dtypes)


def _long(params):
    """For clusters: a row that is not a whole number of vectors, and several rows per cluster."""
    return (
        case((3, 2177), torch.bfloat16, **params),
        case((4100, 2056), torch.bfloat16, **params),
        case((500, 40000), torch.float32, **params),
    )


def _short(params, sweep):
    """For operators that differ from others by a flag: the flag, on a few shapes and every
    layout."""
    empty = tuple(case(s, torch.float32, **params) for s in ((0,), (3, 0)))
    small = tuple(
        case(shape, d, **params)
        for shape, d in (
            ((7,), torch.float32),
            ((2, 3, 40), torch.float32),
            ((4, 1000), torch.bfloat16),
            ((5, 64), torch.float16),
            ((300, 64), torch.bfloat16),
            ((16, 512), torch.bfloat16),
        )
    )
    layouts = ("sliced", "permuted", "offset", "expanded")
    laid_out = tuple(case((6, 40), torch.float32, layout=x, **params) for x in layouts)
    spoiled = tuple(
        case((5, 64), torch.float16, values=v, **params) for v in ("large", "nan", "inf")
    )
    big = case((2**18 + 1, 8192), torch.bfloat16, use="big", **params)
    timed = _bench(ADD_BENCH, params)
    swept = _swept(params, sweep)
    return (*empty, *small, *laid_out, *spoiled, *_long(params), *swept, *timed, big)


NO_WEIGHT, WIDE = {"weight": "none"}, {"weight": "float32"}
NO_BIAS, OFFSET, NO_GH = {"bias": "none"}, {"offset": 1.0}, {"gh": "none"}
AFFINE = (NO_WEIGHT, WIDE, NO_BIAS, {**NO_WEIGHT, **NO_BIAS})
LAYER = _full(
    LAYER_PARAMS,
    (*AFFINE, {"eps": 1.0}),
    torch.float32,
    (torch.bfloat16, torch.float16),
)
RMS = _full(
    RMS_PARAMS,
    (NO_WEIGHT, WIDE, OFFSET, {"eps": 1.0}, {"eps": 0.0}),
    torch.bfloat16,
    (torch.float32, torch.float16),
)
ADD_LAYER = _short(LAYER_PARAMS, AFFINE)
ADD_LAYER_BACKWARD = _short(LAYER_PARAMS, (*AFFINE, NO_GH))
ADD_RMS = _short(RMS_PARAMS, (NO_WEIGHT, WIDE, OFFSET))
ADD_RMS_BACKWARD = _short(RMS_PARAMS, (NO_WEIGHT, WIDE, OFFSET, NO_GH))


def layer_inputs(c, device):
    return {
        "x": tensor(c, "x", device),
        "weight": _parameter(c, "weight", device),
        "bias": _parameter(c, "bias", device),
        "eps": c.param("eps"),
    }


def rms_inputs(c, device):
    return {
        "x": tensor(c, "x", device),
        "weight": _parameter(c, "weight", device),
        "eps": c.param("eps"),
        "offset": c.param("offset", 0.0),
    }


def with_residual(inputs):
    """The inputs that `made` makes, and a residual."""
    return lambda c, device: {**inputs(c, device), "residual": tensor(c, "residual", device)}


def backward(inputs_of, statistics):
    """Inputs of the backward of the operator whose inputs `made` makes: a gradient for each result,
    and the statistics of the rows, `statistics(x, eps)` in float32."""

    def inputs(c, device):
        args = {**inputs_of(c, device), "gy": tensor(c, "gy", device)}
        x = args["x"]
        if "residual" in args:
            x = args["h"] = args.pop("x") + args.pop("residual")
            args["gh"] = None if c.param("gh") == "none" else tensor(c, "gh", device)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        args.update(statistics(wide, args.pop("eps")))
        return args

    return inputs


def _parameter(c, name, device):
    """A parameter of the input's dtype, or float32 if the case says so; or None."""
    if c.param(name) == "none":
        return None
    dtype = torch.float32 if c.param("weight") == "float32" else c.dtype
    return tensor(c, name, device, dtype=dtype, shape=c.shape[-1:])
