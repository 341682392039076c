"""group_norm, optionally followed by silu: the mathematics.

The channels of a sample are normalised in groups. With mean and variance over a group,

    xhat = (x - mean) * rstd    rstd = 1 / sqrt(var x + eps)
        z = xhat * weight + bias    one weight and bias per channel
    y = z, or silu(z) = z / (1 + e^-z)

The backward takes mean and rstd from the forward, and recomputes z. With h the gradient of z and g
= h * weight,

    gx = rstd * (g - xhat * mean(g * xhat) - mean(g))    means over a group

gweight is the sum of h * xhat over samples and positions; gbias is the sum of h.

The operator's x has three dimensions: (N, C, L), or (N, L, C) with `channels_last`.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec
from kernelwright.contract.rounding import U, mean_noise, root_levels

from . import cases


def grouped(t, groups, channels_last):
    """x as (N, groups, C / groups, L), from either order of dimensions."""
    t = t.transpose(1, 2) if channels_last else t
    return t.unflatten(1, (groups, t.shape[1] // groups))


def ungrouped(t, channels_last):
    """The way back."""
    t = t.flatten(1, 2)
    return t.transpose(1, 2) if channels_last else t


def per_channel(p, groups):
    """A parameter in a shape that broadcasts against `grouped`."""
    return p.view(groups, -1, 1)


def over(t):
    """The mean over each group, of a `grouped` tensor."""
    return t.flatten(-2).mean(-1)[..., None, None]


def _affine(xhat, weight, bias, groups):
    z = xhat if weight is None else xhat * per_channel(weight, groups)
    return z if bias is None else z + per_channel(bias, groups)


def group_norm(x, weight, bias, groups, eps, channels_last=False, silu=False):
    x = grouped(x, groups, channels_last)
    mean = over(x)
    rstd = torch.rsqrt(over((x - mean).square()) + eps)
    z = _affine((x - mean) * rstd, weight, bias, groups)
    y = torch.nn.functional.silu(z) if silu else z
    return ungrouped(y, channels_last), mean.flatten(1), rstd.flatten(1)


def normalised(x, weight, bias, mean, rstd, groups, channels_last):
    """xhat and z in the shape of `grouped`, from the statistics."""
    xhat = (grouped(x, groups, channels_last) - mean[..., None, None]) * rstd[..., None, None]
    return xhat, _affine(xhat, weight, bias, groups)


def _opened(gy, x, weight, bias, mean, rstd, groups, channels_last, silu):
    """The gradient of z, and xhat, in the shape of `grouped`."""
    h = grouped(gy, groups, channels_last)
    xhat, z = normalised(x, weight, bias, mean, rstd, groups, channels_last)
    if silu:
        s = torch.sigmoid(z)
        h = h * s * (1 + z * (1 - s))
    return h, xhat


def group_norm_backward(gy, x, weight, bias, mean, rstd, groups, channels_last=False, silu=False):
    h, xhat = _opened(gy, x, weight, bias, mean, rstd, groups, channels_last, silu)
    g = h if weight is None else h * per_channel(weight, groups)
    gx = rstd[..., None, None] * (g - xhat * over(g * xhat) - over(g))
    return ungrouped(gx, channels_last), _summed(h * xhat, weight), _summed(h, bias)


def _summed(terms, parameter):
    """The gradient of a weight or bias; a tensor of shape (0,) if there is none."""
    return terms.new_empty(0) if parameter is None else terms.sum((0, 3)).flatten()


def outputs(x, groups, **others):
    wide = torch.promote_types(x.dtype, torch.float32)
    statistic = TensorSpec.contiguous((x.shape[0], groups), wide)
    return TensorSpec.contiguous(x.shape, x.dtype), statistic, statistic


def backward_outputs(x, weight, bias, **others):
    return TensorSpec.contiguous(x.shape, x.dtype), *(
        TensorSpec.contiguous((0,), x.dtype)
        if p is None
        else TensorSpec.contiguous(p.shape, p.dtype)
        for p in (weight, bias)
    )


def _bytes(*tensors):
    return sum(t.nbytes for t in tensors if t is not None)


def cost(x, weight, bias, groups, silu=False, **others):
    statistics = 8 * x.shape[0] * groups
    flops = (12 if silu else 7) * x.numel()
    return Cost((x.nbytes, _bytes(weight, bias)), (x.nbytes, statistics), flops=flops)


def backward_cost(gy, x, weight, bias, mean, rstd, silu=False, **others):
    small = _bytes(weight, bias if silu else None, mean, rstd)
    flops = (24 if silu else 12) * x.numel()
    return Cost((gy.nbytes, x.nbytes, small), (x.nbytes, _bytes(weight, bias)), flops=flops)


def public(x, weight, bias, groups, eps, channels_last=False, silu=False):
    """The arguments of the public function."""
    given = x.transpose(1, 2) if channels_last else x
    return (given, groups, weight, bias, eps), {"silu": True} if silu else {}


def _size_of(p, groups, like):
    """|parameter| in a shape that broadcasts against `grouped`; 1 if there is none."""
    return like.new_ones(()) if p is None else per_channel(p.double().abs(), groups)


def _z_noise(x, weight, bias, groups, mean, rstd):
    """The noise of z: x - mean, the products and the sum are rounded, each by u of its size; the
    error of the mean is `mean_noise`."""
    of_mean = mean_noise(x.flatten(-2))[..., None]
    z = _size_of(weight, groups, x) * rstd * (4 * (x - mean).abs() + of_mean)
    return z if bias is None else z + _size_of(bias, groups, x)


def noise(x, weight, bias, groups, eps, channels_last=False, silu=False):
    """The rounding error of float32 in the differences (`_z_noise`). The slope of silu is at most
    1.1, and it rounds its result a few times.

    The error of rstd: where parts are merged, their means are rounded, by e = u |mean| each, before
    they are subtracted from the mean of all. This changes the squared deviations of all n elements,
    a sum of independent terms, by about 2 e sqrt(n var), and therefore rstd by e rstd^2 / sqrt(n);
    twice that for both means."""
    given = grouped(x.double(), groups, channels_last)
    y, mean, rstd = group_norm(x.double(), *map(_double, (weight, bias)), groups, eps,
                               channels_last, silu)  # fmt: skip
    of_y = _z_noise(given, weight, bias, groups, mean[..., None, None], rstd[..., None, None])
    of_y = ungrouped(of_y, channels_last)
    of_y = 1.1 * of_y + 4 * y.abs() if silu else of_y
    of_mean = mean_noise(given.flatten(-2))[..., 0]
    n = max(given.shape[2] * given.shape[3], 1)
    of_rstd = 4 * rstd + 2 * mean.abs() * rstd.square() / n**0.5
    return tuple(U * t for t in (of_y, of_mean, of_rstd))


def large(x, weight, bias, groups, eps, channels_last=False, silu=False):
    """Statistics of one group after another."""
    given = grouped(x, groups, channels_last).flatten(0, 1)
    found = [moments(t.double().flatten(), eps) for t in given]
    shape = (x.shape[0], groups)
    mean, rstd = (tuple(torch.stack(t).view(shape) for t in zip(*of, strict=True))
                  for of in zip(*found, strict=True))  # fmt: skip
    return {"mean": mean, "rstd": rstd}


def moments(t, eps):
    """((mean, its noise), (rstd, its noise)) of all elements."""
    mean, var = t.mean(), t.var(correction=0)
    rstd = torch.rsqrt(var + eps)
    of_rstd = 4 * rstd + 2 * mean.abs() * rstd.square() / t.numel() ** 0.5
    return (mean, U * mean_noise(t)[0]), (rstd, U * of_rstd)


def _double(p):
    return None if p is None else p.double()


def backward_noise(gy, x, weight, bias, mean, rstd, groups, channels_last=False, silu=False):
    """The rounding error of float32 where the backward's differences and sums cancel.

    In gx = rstd (g - xhat m1 - m2) each term is rounded, by u of its size, and a mean has the error
    of a sum (rounding.py). With silu, the error of h is that of z times the second derivative,
    which is at most 1/2.
    """
    weight, bias, gy, x, mean, rstd = map(_double, (weight, bias, gy, x, mean, rstd))
    h, xhat = _opened(gy, x, weight, bias, mean, rstd, groups, channels_last, silu)
    wide, m, r = _size_of(weight, groups, x), mean[..., None, None], rstd[..., None, None]
    of_h = torch.zeros_like(h)
    if silu:
        of_z = _z_noise(grouped(x, groups, channels_last), weight, bias, groups, m, r)
        of_h = grouped(gy, groups, channels_last).abs() * (0.5 * of_z + 4)
    g = h * (1 if weight is None else per_channel(weight, groups))
    of_means = [mean_noise(t.flatten(-2))[..., None] for t in (g * xhat, g)]
    gx = r * (wide * of_h + g.abs() + xhat.abs() * of_means[0] + of_means[1])
    root = root_levels(x.shape[0] * h.shape[-1]) + 2  # each term is a product of rounded factors
    found = [U * ungrouped(gx, channels_last)]
    for p, terms, of_terms in ((weight, h * xhat, of_h * xhat), (bias, h, of_h)):
        size = root * _summed(terms.square(), p).sqrt() + _summed(of_terms.square(), p).sqrt()
        found.append(U * size)
    return tuple(found)


def statistics(x, mean, rstd, groups, channels_last=False, **others):
    """mean and rstd as functions of x, for the double backward, to which they are constants. The
    eps that the forward added to the variance is the difference between 1 / rstd^2 and the
    variance."""
    wide = grouped(x.to(mean.dtype), groups, channels_last)
    found = over(wide)
    variance = over((wide - found).square()).flatten(1)
    eps = (rstd.detach().pow(-2) - variance.detach()).clamp_min(0.0)
    return {"mean": found.flatten(1), "rstd": torch.rsqrt(variance + eps)}


def sharding(args, results):
    """Over samples, which do not depend on each other."""
    x = args["x"]
    if x.shape[0] != 1:
        split = {k: 0 for k, t in args.items() if isinstance(t, TensorSpec)}
        split.update({k: None for k in ("weight", "bias") if args[k] is not None})
        for name, t in results.items():
            split[name] = 0 if name not in ("gweight", "gbias") else _whole(t)
        yield split


def _whole(t):
    """The sharding of a parameter's gradient: a sum over the samples, or the empty tensor."""
    return "sum" if t.numel() else None


FORWARD = Operator(
    name="group_norm",
    schema="(Tensor x, Tensor? weight, Tensor? bias, int groups, float eps,"
    " bool channels_last=False, bool silu=False) -> (Tensor y, Tensor mean, Tensor rstd)",
    reference=group_norm,
    inputs=cases.inputs,
    cases=cases.CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    noise=noise,
    large=large,
    sharding=sharding,
    source="torch.nn.functional.group_norm; Wu and He 2018, arXiv:1803.08494",
)
BACKWARD = Operator(
    name="group_norm.backward",
    schema="(Tensor gy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd,"
    " int groups, bool channels_last=False, bool silu=False)"
    " -> (Tensor gx, Tensor gweight, Tensor gbias)",
    reference=group_norm_backward,
    inputs=cases.backward_inputs,
    cases=cases.CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    contiguous=("mean", "rstd"),
    noise=backward_noise,
    sharding=sharding,
    source="autograd of torch.nn.functional.group_norm",
)
