"""batch_norm: the mathematics. A channel is normalized over all samples and positions. This is
group_norm of one sample with one channel per group,

    xhat = (x - mean) * rstd, rstd = 1 / sqrt(var x + eps), y = xhat * weight + bias
    gx = weight * rstd * (gy - xhat * mean(gy * xhat) - mean(gy))

with the mean and variance of the batch in training. The result `var`, for the running variance, is
divided by the number of elements minus one. Inference uses the running statistics and applies a
scale and a shift to each channel:

    y = scale * x + shift, scale = weight / sqrt(var + eps), shift = bias - mean * scale

The operators' x has three dimensions: (N, C, L), or (N, L, C) with `channels_last`. If a batch is
split over processes, the same is computed in steps, with one collective between the steps of each
direction:

    batch_norm_stats            mean and variance (over all elements) of a process's samples
    batch_norm_inference        y, from those of the whole batch
    batch_norm_backward_reduce  means of gy and of gy * xhat over a process's samples
    batch_norm_backward_elemt   gx, from those of the whole batch, times the weight
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec
from kernelwright.contract.rounding import U, mean_noise, root_levels
from kernelwright.ops.norm.group_norm import spec as group

from . import cases


def channels_of(x, channels_last):
    return x.shape[2 if channels_last else 1]


def joined(t, channels_last):
    """All samples combined to one, (1, C, N L) or (1, N L, C)."""
    if channels_last:
        return t.reshape(1, -1, t.shape[2])
    return t.transpose(0, 1).reshape(1, t.shape[1], -1)


def parted(t, like, channels_last):
    """The inverse of `joined`, to the shape of `like`."""
    if channels_last:
        return t.view(like.shape)
    n, c, length = like.shape
    return t.view(c, n, length).transpose(0, 1).contiguous()


def across(p, channels_last):
    """A parameter or statistic of the channels in a shape that broadcasts against x."""
    return p if channels_last else p[:, None]


def batch_norm(x, weight, bias, eps, channels_last=False):
    c, sample = channels_of(x, channels_last), joined(x, channels_last)
    y, mean, rstd = group.group_norm(sample, weight, bias, max(c, 1), eps, channels_last)
    mean, rstd = mean.flatten()[:c], rstd.flatten()[:c]
    squares = (sample - across(mean, channels_last)).square().sum(1 if channels_last else 2)
    n = x.numel() // max(c, 1)
    return parted(y, x, channels_last), mean, rstd, squares.flatten() / (n - 1)


def _one_sample(channels_last, x, **args):
    """The arguments of the backward as group_norm takes them: a single sample."""
    row = {k: args[k].unsqueeze(0) for k in ("mean", "rstd")}
    given = {k: joined(args[k], channels_last) for k in ("gy",)}
    return {
        **args, **given, **row, "x": joined(x, channels_last), "channels_last": channels_last,
        "groups": max(channels_of(x, channels_last), 1),
    }  # fmt: skip


def batch_norm_backward(gy, x, weight, bias, mean, rstd, channels_last=False):
    args = _one_sample(channels_last, x, gy=gy, weight=weight, bias=bias, mean=mean, rstd=rstd)
    gx, *others = group.group_norm_backward(**args)
    return parted(gx, x, channels_last), *others


def batch_norm_inference(x, weight, bias, mean, var, eps, channels_last=False):
    scale = torch.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight
    y = (x - across(mean, channels_last)) * across(scale, channels_last)
    return y if bias is None else y + across(bias, channels_last)


def batch_norm_inference_backward(gy, x, weight, bias, mean, var, eps, channels_last=False):
    rstd = torch.rsqrt(var + eps)
    scale = rstd if weight is None else rstd * weight
    xhat = (x - across(mean, channels_last)) * across(rstd, channels_last)
    return (
        gy * across(scale, channels_last),
        _over_batch(gy * xhat, weight, channels_last),
        _over_batch(gy, bias, channels_last),
    )


def _over_batch(terms, parameter, channels_last):
    """The gradient of a weight or bias; a tensor of shape (0,) if there is none."""
    if parameter is None:
        return terms.new_empty(0)
    return terms.sum((0, 1) if channels_last else (0, 2))


def batch_norm_stats(x, channels_last=False):
    sample, of = joined(x, channels_last)[0], 0 if channels_last else 1
    mean = sample.mean(of)
    return mean, (sample - across(mean, channels_last)).square().mean(of)


def batch_norm_backward_reduce(gy, x, mean, rstd, channels_last=False):
    xhat = (x - across(mean, channels_last)) * across(rstd, channels_last)
    over = (0, 1) if channels_last else (0, 2)
    return torch.stack((gy.mean(over), (gy * xhat).mean(over)), -1)


def batch_norm_backward_elemt(gy, x, weight, mean, rstd, total, channels_last=False):
    xhat = (x - across(mean, channels_last)) * across(rstd, channels_last)
    g = gy if weight is None else gy * across(weight, channels_last)
    of = [across(t, channels_last) for t in total.unbind(-1)]
    return across(rstd, channels_last) * (g - of[0] - xhat * of[1])


# specs of the results


def _statistic(x, channels_last, *last):
    wide = torch.promote_types(x.dtype, torch.float32)
    return TensorSpec.contiguous((channels_of(x, channels_last), *last), wide)


def outputs(x, channels_last=False, **others):
    statistic = _statistic(x, channels_last)
    return TensorSpec.contiguous(x.shape, x.dtype), statistic, statistic, statistic


def like_x(x, **others):
    return (TensorSpec.contiguous(x.shape, x.dtype),)


def stats_outputs(x, channels_last=False):
    return (_statistic(x, channels_last),) * 2


def reduce_outputs(gy, x, mean, rstd, channels_last=False):
    return (_statistic(x, channels_last, 2),)


# In training, x no longer fits in L2 when its mean is known: it is read twice, in the backward gy
# too.


def _bytes(*tensors):
    return sum(t.nbytes for t in tensors if t is not None)


def cost(x, weight, bias, channels_last=False, **others):
    small = _bytes(weight, bias)
    statistics = 12 * channels_of(x, channels_last)
    return Cost((x.nbytes, x.nbytes, small), (x.nbytes, statistics), flops=7 * x.numel())


def backward_cost(gy, x, weight, bias, mean, rstd, **others):
    streams = (gy.nbytes, x.nbytes) * 2
    small = _bytes(weight, mean, rstd)
    return Cost((*streams, small), (x.nbytes, _bytes(weight, bias)), flops=12 * x.numel())


def inference_cost(x, weight, bias, mean, var, **others):
    return Cost((x.nbytes, _bytes(weight, bias, mean, var)), (x.nbytes,), flops=2 * x.numel())


def inference_backward_cost(gy, x, weight, bias, mean, var, **others):
    small = _bytes(weight, mean, var)
    reads = (gy.nbytes, x.nbytes, small)
    return Cost(reads, (x.nbytes, _bytes(weight, bias)), flops=6 * x.numel())


def stats_cost(x, channels_last=False):
    return Cost((x.nbytes,), (8 * channels_of(x, channels_last),), flops=4 * x.numel())


def reduce_cost(gy, x, mean, rstd, channels_last=False):
    return Cost((gy.nbytes, x.nbytes, _bytes(mean, rstd)), (2 * mean.nbytes,), flops=5 * x.numel())


def elemt_cost(gy, x, weight, mean, rstd, total, channels_last=False):
    small = _bytes(weight, mean, rstd, total)
    return Cost((gy.nbytes, x.nbytes, small), (x.nbytes,), flops=7 * x.numel())


# rounding errors of float32, as in group_norm


def _double(p):
    return None if p is None else p.double()


def noise(x, weight, bias, eps, channels_last=False):
    c = max(channels_of(x, channels_last), 1)
    noises = group.noise(joined(x, channels_last), weight, bias, c, eps, channels_last)
    var = batch_norm(x.double(), None, None, eps, channels_last)[3]
    y, mean, rstd = noises
    of_var = _variance_noise(x, var, channels_last)
    return parted(y, x, channels_last), mean.flatten(), rstd.flatten(), of_var


def large(x, weight, bias, eps, channels_last=False):
    """Statistics of one channel after another."""
    by_channel = [
        _statistics(t.double().flatten(), eps) for t in x.unbind(2 if channels_last else 1)
    ]
    named = zip(("mean", "rstd", "var"), zip(*by_channel, strict=True), strict=True)
    return {name: tuple(map(torch.stack, zip(*of, strict=True))) for name, of in named}


def large_stats(x, channels_last=False):
    n = x.numel() // channels_of(x, channels_last)
    values = large(x, None, None, 0.0, channels_last)
    var = tuple(t * ((n - 1) / n) for t in values["var"])
    return {"mean": values["mean"], "var": var}


def _statistics(t, eps):
    """Each with its noise: mean, rstd, unbiased variance."""
    mean, var = t.mean(), t.var()
    of_var = U * (8 * var + 4 * mean.abs() * (var / t.numel()) ** 0.5)
    return *group.moments(t, eps), (var, of_var)


def _variance_noise(x, var, channels_last):
    """The error of the squares, and that of the means of parts, as derived in group_norm's spec: 4
    |mean| u sqrt(var / n)."""
    n = x.numel() // max(channels_of(x, channels_last), 1)
    if n == 0:
        return var.abs()
    mean = joined(x.double(), channels_last)[0].mean(0 if channels_last else 1)
    return U * (8 * var.abs() + 4 * mean.abs() * (var.abs() / n).sqrt())


def backward_noise(gy, x, weight, bias, mean, rstd, channels_last=False):
    args = _one_sample(channels_last, x, gy=gy, weight=weight, bias=bias, mean=mean, rstd=rstd)
    gx, *others = group.backward_noise(**args)
    return parted(gx, x, channels_last), *others


def inference_noise(x, weight, bias, mean, var, eps, channels_last=False):
    """The difference, the products and the sum are each rounded, by u of their size. With a
    combined scale and shift, the products are x scale and mean scale, which are rounded before they
    cancel."""
    scale = torch.rsqrt(var.double() + eps).abs()
    scale = scale if weight is None else scale * weight.double().abs()
    shift = scale * mean.double().abs()
    shift = shift if bias is None else shift + bias.double().abs()
    scale, shift = across(scale, channels_last), across(shift, channels_last)
    return (U * (4 * x.double().abs() * scale + 4 * shift),)


def inference_backward_noise(gy, x, weight, bias, mean, var, eps, channels_last=False):
    gx, gweight, gbias = (_double(t) for t in (gy, weight, bias))
    rstd = torch.rsqrt(var.double() + eps)
    scale = rstd if weight is None else rstd * gweight.abs()
    xhat = (x.double() - across(mean.double(), channels_last)) * across(rstd, channels_last)
    root = root_levels(x.numel() // max(channels_of(x, channels_last), 1))
    sums = (_over_batch(t.square(), p, channels_last).sqrt()
            for t, p in ((gx * xhat, gweight), (gx, gbias)))  # fmt: skip
    return U * 4 * gx.abs() * across(scale, channels_last), *(U * root * s for s in sums)


def stats_noise(x, channels_last=False):
    sample = joined(x.double(), channels_last)[0]
    of_mean = mean_noise(sample.T if channels_last else sample)[:, 0]
    var = batch_norm_stats(x.double(), channels_last)[1]
    return U * of_mean, _variance_noise(x, var, channels_last)


def reduce_noise(gy, x, mean, rstd, channels_last=False):
    gy, xhat = (
        gy.double(),
        (x.double() - across(mean.double(), channels_last)) * across(rstd.double(), channels_last),
    )
    terms = [joined(t, channels_last)[0] for t in (gy, gy * xhat)]
    noises = [mean_noise(t.T if channels_last else t)[:, 0] for t in terms]
    return (U * torch.stack(noises, -1),)


def elemt_noise(gy, x, weight, mean, rstd, total, channels_last=False):
    r = across(rstd.double(), channels_last)
    xhat = ((x.double() - across(mean.double(), channels_last)) * r).abs()
    w = 1.0 if weight is None else across(weight.double().abs(), channels_last)
    of = [across(t.double().abs(), channels_last) for t in total.unbind(-1)]
    return (U * 4 * r * (gy.double().abs() * w + of[0] + xhat * of[1]),)


def statistics(x, mean, rstd, channels_last=False, **others):
    """mean and rstd as functions of x, for double backward."""
    c = channels_of(x, channels_last)
    by_group = group.statistics(joined(x, channels_last), mean[None], rstd[None], c, channels_last)
    return {k: v.flatten() for k, v in by_group.items()}


def sharding(args, results):
    """Over channels, which do not depend on each other."""
    along = 2 if args["channels_last"] else 1
    if channels_of(args["x"], args["channels_last"]) != 1:
        tensors = {k: t for k, t in (*args.items(), *results.items()) if isinstance(t, TensorSpec)}
        yield {
            k: along if k in ("x", "gy", "y", "gx") else 0 if t.numel() else None
            for k, t in tensors.items()
        }


FORWARD = Operator(
    name="batch_norm",
    schema="(Tensor x, Tensor? weight, Tensor? bias, float eps, bool channels_last=False)"
    " -> (Tensor y, Tensor mean, Tensor rstd, Tensor var)",
    reference=batch_norm,
    inputs=cases.inputs,
    cases=cases.CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    noise=noise,
    large=large,
    sharding=sharding,
    source="torch.nn.functional.batch_norm; Ioffe and Szegedy 2015, arXiv:1502.03167",
)
BACKWARD = Operator(
    name="batch_norm.backward",
    schema="(Tensor gy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd,"
    " bool channels_last=False) -> (Tensor gx, Tensor gweight, Tensor gbias)",
    reference=batch_norm_backward,
    inputs=cases.backward_inputs,
    cases=cases.CASES,
    cost=backward_cost,
    outputs=group.backward_outputs,
    layout="rows",
    contiguous=("mean", "rstd"),
    noise=backward_noise,
    sharding=sharding,
    source="autograd of torch.nn.functional.batch_norm in training",
)
INFERENCE = Operator(
    name="batch_norm_inference",
    schema="(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float eps,"
    " bool channels_last=False) -> (Tensor y)",
    reference=batch_norm_inference,
    inputs=cases.inference_inputs,
    cases=cases.FEW,
    cost=inference_cost,
    outputs=like_x,
    layout="rows",
    contiguous=("mean", "var"),
    noise=inference_noise,
    sharding=sharding,
    source="torch.nn.functional.batch_norm with running statistics",
)
INFERENCE_BACKWARD = Operator(
    name="batch_norm_inference.backward",
    schema="(Tensor gy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float eps,"
    " bool channels_last=False) -> (Tensor gx, Tensor gweight, Tensor gbias)",
    reference=batch_norm_inference_backward,
    inputs=cases.inference_backward_inputs,
    cases=cases.FEW,
    cost=inference_backward_cost,
    outputs=group.backward_outputs,
    layout="rows",
    contiguous=("mean", "var"),
    noise=inference_backward_noise,
    sharding=sharding,
    source="autograd of torch.nn.functional.batch_norm with running statistics",
)
STATS = Operator(
    name="batch_norm_stats",
    schema="(Tensor x, bool channels_last=False) -> (Tensor mean, Tensor var)",
    reference=batch_norm_stats,
    inputs=cases.stats_inputs,
    cases=cases.FEW,
    cost=stats_cost,
    outputs=stats_outputs,
    layout="rows",
    noise=stats_noise,
    large=large_stats,
    sharding=sharding,
    source="torch.batch_norm_stats, with the variance for its inverse root",
)
REDUCE = Operator(
    name="batch_norm_backward_reduce",
    schema="(Tensor gy, Tensor x, Tensor mean, Tensor rstd, bool channels_last=False)"
    " -> (Tensor total)",
    reference=batch_norm_backward_reduce,
    inputs=cases.reduce_inputs,
    cases=cases.FEW,
    cost=reduce_cost,
    outputs=reduce_outputs,
    layout="rows",
    contiguous=("mean", "rstd"),
    noise=reduce_noise,
    sharding=sharding,
    source="torch.batch_norm_backward_reduce, as means",
)
GX = Operator(
    name="batch_norm_backward_elemt",
    schema="(Tensor gy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, Tensor total,"
    " bool channels_last=False) -> (Tensor gx)",
    reference=batch_norm_backward_elemt,
    inputs=cases.elemt_inputs,
    cases=cases.FEW,
    cost=elemt_cost,
    outputs=like_x,
    layout="rows",
    contiguous=("mean", "rstd", "total"),
    noise=elemt_noise,
    sharding=sharding,
    source="torch.batch_norm_backward_elemt, of means times the weight",
)
