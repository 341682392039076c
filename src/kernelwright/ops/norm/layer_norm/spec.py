"""layer_norm and rms_norm: the mathematics, with and without a residual that is added first.

    layer_norm  y = xhat * weight + bias      xhat = (x - mean) * rstd, rstd = 1 / sqrt(var x + eps)
    rms_norm    y = xhat * (weight + offset)  xhat = x * rstd, rstd = 1 / sqrt(mean(x^2) + eps)
    add_...     h = x + residual, rounded to its dtype; then y is the norm of h

along a row. The backward takes mean and rstd from the forward. With g = gy * weight,

    gx = rstd * (g - xhat * mean(g * xhat) - mean(g))     without the last term for rms_norm

gweight is the sum of gy * xhat over the rows; gbias is the sum of gy. x and the residual have the
same gradient: gx of h, plus the gradient gh of h as a result.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec
from kernelwright.contract.rounding import U, mean_noise, root_levels
from kernelwright.contract.sharding import Rows, last_dimension

from . import cases


def layer_norm(x, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    y = (x - mean) * rstd
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, rstd


def rms_norm(x, weight, eps, offset):
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = x * rstd
    return y if weight is None else y * (weight + offset), rstd


def add_layer_norm(x, residual, weight, bias, eps):
    y, *statistics = layer_norm(x + residual, weight, bias, eps)
    return y, x + residual, *statistics


def add_rms_norm(x, residual, weight, eps, offset):
    y, rstd = rms_norm(x + residual, weight, eps, offset)
    return y, x + residual, rstd


def layer_norm_backward(gy, x, weight, bias, mean, rstd):
    xhat = (x - mean) * rstd
    g = gy if weight is None else gy * weight
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True) - g.mean(-1, keepdim=True))
    return gx, _over_rows(gy * xhat, weight), _over_rows(gy, bias)


def rms_norm_backward(gy, x, weight, rstd, offset):
    xhat = x * rstd
    g = gy if weight is None else gy * (weight + offset)
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return gx, _over_rows(gy * xhat, weight)


def add_layer_norm_backward(gy, gh, h, weight, bias, mean, rstd):
    gx, *others = layer_norm_backward(gy, h, weight, bias, mean, rstd)
    return gx if gh is None else gx + gh, *others


def add_rms_norm_backward(gy, gh, h, weight, rstd, offset):
    gx, gweight = rms_norm_backward(gy, h, weight, rstd, offset)
    return gx if gh is None else gx + gh, gweight


def _over_rows(terms, parameter):
    """The gradient of a weight or bias; a tensor of shape (0,) if there is none."""
    return terms.new_empty(0) if parameter is None else terms.sum_to_size(parameter.shape)


def outputs(x, residual=None, **others):
    """Specs of y, of h if there is a residual, of the mean of a layer_norm, and of rstd."""
    like = TensorSpec.contiguous(x.shape, x.dtype)
    wide = torch.promote_types(x.dtype, torch.float32)
    statistic = TensorSpec.contiguous((*x.shape[:-1], 1), wide)
    rows = (like,) if residual is None else (like, like)
    return (*rows, *(statistic,) * (2 if "bias" in others else 1))


def backward_outputs(x, weight, **others):
    """Specs of gx, of gweight and, for a layer_norm, of gbias."""
    parameters = (weight, others["bias"]) if "bias" in others else (weight,)
    return TensorSpec.contiguous(x.shape, x.dtype), *(
        TensorSpec.contiguous((0,), x.dtype)
        if p is None
        else TensorSpec.contiguous(p.shape, p.dtype)
        for p in parameters
    )


def public(x, weight, eps, residual=None, bias=None, offset=0.0):
    """The arguments of the public functions, and of PyTorch's, for a call without offset."""
    first = (x,) if residual is None else (x, residual)
    return (*first, x.shape[-1:], weight), {"eps": eps} if bias is None else {
        "bias": bias,
        "eps": eps,
    }


def cost(x, residual=None, weight=None, bias=None, **others):
    rows = [t.nbytes for t in (x, residual) if t is not None]
    statistics = 4 * x.numel() // max(x.shape[-1], 1)
    return Cost((*rows, _bytes(weight, bias)), (*rows, statistics), flops=6 * x.numel())


def backward_cost(gy, x, rstd, gh=None, mean=None, weight=None, bias=None, **others):
    rows = [t.nbytes for t in (gy, gh, x) if t is not None]
    small = _bytes(mean, rstd, weight)
    return Cost((*rows, small), (x.nbytes, _bytes(weight, bias)), flops=10 * x.numel())


def _bytes(*tensors):
    return sum(t.nbytes for t in tensors if t is not None)


def layer_noise(x, weight, bias, eps, residual=None):
    """The rounding error of float32 in the differences of a layer_norm: x - mean, and the sum of
    xhat weight and a bias of the opposite sign.

    The error of the mean is `mean_noise`, that of rstd a few u. The difference, the two products
    and the sum are rounded, each by u of its size.
    """
    h = x.double() if residual is None else (x + residual).double()
    _, mean, rstd = layer_norm(h, None, None, eps)
    w = h.new_ones(()) if weight is None else weight.double().abs()
    of_mean = mean_noise(h)
    y = w * rstd * (4 * (h - mean).abs() + of_mean)
    y = y if bias is None else y + bias.double().abs()
    rows = (y,) if residual is None else (y, h.abs())
    return tuple(U * noise for noise in (*rows, of_mean, 4 * rstd))


def backward_noise(gy, x, weight, rstd, mean=None, gh=None, offset=0.0, **others):
    """The rounding error of float32 where the backward's differences and sums cancel.

    In gx = rstd (g - xhat m1 - m2), m1 = mean(g xhat), m2 = mean(g), each term is rounded, by u of
    its size, and a mean has the error of a sum: u sqrt(log2 n) ||g xhat|| / n over a tree (Higham,
    Accuracy and Stability of Numerical Algorithms, 4.2, where rounding errors are assumed to be
    independent). gweight and gbias are such sums over the rows.
    """
    gy, x = gy.double(), x.double()
    xhat = x * rstd if mean is None else (x - mean) * rstd
    g = gy if weight is None else gy * (weight.double() + offset)
    terms = g.abs() + xhat.abs() * mean_noise(g * xhat)
    if mean is not None:
        terms = terms + mean_noise(g)
    gx = U * rstd * terms
    noises = [gx if gh is None else gx + U * gh.double().abs()]
    sums = {"weight": (weight, gy * xhat)}
    if "bias" in others:
        sums["bias"] = (others["bias"], gy)
    root = root_levels(x.numel() // max(x.shape[-1], 1))
    for parameter, summed in sums.values():
        squares = _over_rows(summed.square(), parameter)
        noises.append(U * root * squares.sqrt())
    return tuple(noises)


def unit_mean_square(args, results):
    """Without a weight and a bias, no row of y has a mean square above 1."""
    if args["weight"] is not None or args.get("bias") is not None or not results[0].numel():
        return None
    over = results[0].double().square().mean(-1).nan_to_num(0.0).max() - 1
    limit = 4 * torch.finfo(results[0].dtype).eps
    return f"a row's mean square is 1 + {over:.2g}" if over > limit else None


def sum_is_rounded(args, results):
    """h is exactly x + residual, as in PyTorch: later layers add to it."""
    wrong = int((results[1] != args["x"] + args["residual"]).logical_and(~results[1].isnan()).sum())
    return f"{wrong} elements are not x + residual" if wrong else None


MEAN_SQUARE = {"rows have a mean square of at most 1": unit_mean_square}
ADDED = {**MEAN_SQUARE, "h is the rounded sum": sum_is_rounded}


def _layer_statistics(x, eps):
    _, mean, rstd = layer_norm(x, None, None, eps)
    return {"mean": mean, "rstd": rstd}


def _rms_statistics(x, eps):
    return {"rstd": rms_norm(x, None, eps, 0.0)[1]}


def _of_h(fn):
    """For the backwards in whose schemas the normalized rows are called h."""
    return lambda h, **others: fn(x=h, **others)


def _operators(forward, backward, schemas, of_cases, paper=""):
    """An operator and its backward. The name of the reference determines which norm it is, and
    whether a residual is added first.

    Args:
        schemas, of_cases: those of the operator, followed by those of its backward.
    """
    name = forward.__name__
    added, layer = name.startswith("add_"), name.endswith("layer_norm")
    pytorch = f"torch.nn.functional.{name.removeprefix('add_')}"
    inputs = cases.layer_inputs if layer else cases.rms_inputs
    inputs = cases.with_residual(inputs) if added else inputs
    named = _of_h if added else lambda fn: fn
    return (
        Operator(
            name=name,
            schema=schemas[0],
            reference=forward,
            inputs=inputs,
            cases=of_cases[0],
            cost=cost,
            outputs=outputs,
            layout="rows",
            sharding=Rows(last_dimension),
            properties=ADDED if added else MEAN_SQUARE,
            noise=layer_noise if layer else None,
            source=f"{pytorch} of a sum" if added else f"{pytorch}; {paper}",
        ),
        Operator(
            name=f"{name}.backward",
            schema=schemas[1],
            reference=backward,
            inputs=cases.backward(inputs, _layer_statistics if layer else _rms_statistics),
            cases=of_cases[1],
            cost=named(backward_cost),
            outputs=named(backward_outputs),
            layout="rows",
            contiguous=("mean", "rstd") if layer else ("rstd",),
            sharding=Rows(last_dimension),
            noise=named(backward_noise),
            source=f"autograd of {pytorch}{' of a sum' if added else ''}",
        ),
    )


LAYER_NORM, LAYER_NORM_BACKWARD = _operators(
    layer_norm,
    layer_norm_backward,
    (
        "(Tensor x, Tensor? weight, Tensor? bias, float eps)"
        " -> (Tensor y, Tensor mean, Tensor rstd)",
        "(Tensor gy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd)"
        " -> (Tensor gx, Tensor gweight, Tensor gbias)",
    ),
    (cases.LAYER, cases.LAYER),
    "Ba, Kiros and Hinton 2016, arXiv:1607.06450",
)
RMS_NORM, RMS_NORM_BACKWARD = _operators(
    rms_norm,
    rms_norm_backward,
    (
        "(Tensor x, Tensor? weight, float eps, float offset=0.0) -> (Tensor y, Tensor rstd)",
        "(Tensor gy, Tensor x, Tensor? weight, Tensor rstd, float offset=0.0)"
        " -> (Tensor gx, Tensor gweight)",
    ),
    (cases.RMS, cases.RMS),
    "Zhang and Sennrich 2019, arXiv:1910.07467",
)
ADD_LAYER_NORM, ADD_LAYER_NORM_BACKWARD = _operators(
    add_layer_norm,
    add_layer_norm_backward,
    (
        "(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps)"
        " -> (Tensor y, Tensor h, Tensor mean, Tensor rstd)",
        "(Tensor gy, Tensor? gh, Tensor h, Tensor? weight, Tensor? bias, Tensor mean,"
        " Tensor rstd) -> (Tensor gx, Tensor gweight, Tensor gbias)",
    ),
    (cases.ADD_LAYER, cases.ADD_LAYER_BACKWARD),
)
ADD_RMS_NORM, ADD_RMS_NORM_BACKWARD = _operators(
    add_rms_norm,
    add_rms_norm_backward,
    (
        "(Tensor x, Tensor residual, Tensor? weight, float eps, float offset=0.0)"
        " -> (Tensor y, Tensor h, Tensor rstd)",
        "(Tensor gy, Tensor? gh, Tensor h, Tensor? weight, Tensor rstd, float offset=0.0)"
        " -> (Tensor gx, Tensor gweight)",
    ),
    (cases.ADD_RMS, cases.ADD_RMS_BACKWARD),
)
