"""layer_norm_residual_dropout_gelu: the mathematics, in the order of the name.

    xhat = (x - mean) rstd,  rstd = 1 / sqrt(var x + eps)           along a row
    s = xhat weight + bias + residual,  d = f s,  y = gelu(d)

with dropout's factor f (ops/dropout: 1 / (1 - p) if kept, else 0; 1 without a seed). The backward
takes x, residual, mean, rstd and the seed, and recomputes the rest. With gs = gy gelu'(d) f and g =
gs weight,

    gresidual = gs    gx = rstd (g - xhat mean(g xhat) - mean(g))

gweight is the sum of gs xhat over the rows; gbias is the sum of gs.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import tensor
from kernelwright.contract.rounding import U, mean_noise, root_levels
from kernelwright.ops.elementwise import _activations as act
from kernelwright.ops.random._keep import factor

BENCH = {
    (8192, 4096): "Llama 3 8B hidden, 8192 tokens",
    (32768, 768): "GPT-2 hidden, 32 x 1024 tokens",
}
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
PARAMS = {"p": 0.1, "eps": 1e-5, "approximate": "none"}
SWEEP = (
    {"approximate": "tanh"},
    {"p": 0.5, "weight": "none", "bias": "none"},
    {"bias": "none", "weight": "float32"},
    {"seed": "none"},
    {"p": 1.0},
)
CASES = (
    *(case(s, F32, **PARAMS) for s in ((0,), (3, 0), (7,), (5, 33), (2, 3, 40), (150, 64))),
    *(case((6, 40), F32, layout=x, **PARAMS) for x in ("sliced", "permuted", "offset", "expanded")),
    *(case(s, d, **PARAMS) for d in (F16, BF16) for s in ((5, 33), (6, 264), (3, 2000))),
    *(case((4, 64), F16, values=v, **PARAMS) for v in ("nan", "inf")),
    *(case((4, 3, 64), d, **{**PARAMS, **more}) for more in SWEEP for d in (F32, BF16)),
    *(case(s, d, use="bench", label=n, **PARAMS) for s, n in BENCH.items() for d in (BF16, F32)),
    case((2**19 + 1, 4096), BF16, use="big", **PARAMS),
)


def reference(x, residual, weight, bias, seed, p, eps, approximate):
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    d, _, _ = _dropped(x, residual, weight, bias, mean, rstd, seed, p)
    return act.gelu(d, approximate), mean, rstd


def backward_reference(gy, x, residual, weight, bias, mean, rstd, seed, p, approximate):
    d, xhat, f = _dropped(x, residual, weight, bias, mean, rstd, seed, p)
    gs = gy * act.gelu_slope(d, approximate) * f
    g = gs if weight is None else gs * weight
    gx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True) - g.mean(-1, keepdim=True))
    return gx, gs, _over_rows(gs * xhat, weight), _over_rows(gs, bias)


def _dropped(x, residual, weight, bias, mean, rstd, seed, p):
    """(d, xhat, f)."""
    xhat = (x - mean) * rstd
    s = xhat if weight is None else xhat * weight
    s = s + residual if bias is None else s + bias + residual
    f = 1.0 if seed is None else factor(x.shape, seed, p)
    return s * f, xhat, f


def _over_rows(terms, parameter):
    """The gradient of a weight or bias; a tensor of shape (0,) if there is none."""
    return terms.new_empty(0) if parameter is None else terms.sum_to_size(parameter.shape)


def noise(x, residual, weight, bias, seed, p, eps, approximate):
    """The noise of d times the largest slope of gelu, and gelu's own; statistics as in
    layer_norm."""
    x, r = x.double(), residual.double()
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    d, _, f = _dropped(x, r, _double(weight), _double(bias), mean, rstd, seed, p)
    of_mean = mean_noise(x)
    d_noise = _d_noise(x, r, weight, bias, mean, rstd, f, of_mean)
    return act.gelu_noise(d, approximate) + 1.13 * d_noise, U * of_mean, 4 * U * rstd


def backward_noise(gy, x, residual, weight, bias, mean, rstd, seed, p, approximate):
    """gs: the error of the slope, and that of d times the second derivative, which is below 0.8.
    gx: the error of gs times the weights, three rounding errors per term, and those of the means,
    each a tree sum of terms with independent errors (Higham, Accuracy and Stability of Numerical
    Algorithms, 4.2); the same holds for gweight and gbias."""
    gy, x, r = gy.double(), x.double(), residual.double()
    mean, rstd = mean.double(), rstd.double()
    d, xhat, f = _dropped(x, r, _double(weight), _double(bias), mean, rstd, seed, p)
    d_noise = _d_noise(x, r, weight, bias, mean, rstd, f, 0.0)
    slope = act.gelu_slope(d, approximate)
    gs, slope_noise = gy * slope * f, act.gelu_slope_noise(d, approximate)
    gs_noise = (gy * f).abs() * (slope_noise + 0.8 * d_noise) + 2 * U * gs.abs()
    w = 1.0 if weight is None else weight.double().abs()
    g, g_noise = gs.abs() * w, gs_noise * w + U * gs.abs() * w
    n = max(x.shape[-1], 1)
    terms = 3 * U * g + g_noise
    for factor_of, times in ((xhat.abs(), xhat.abs()), (1.0, 1.0)):
        summed = (g * factor_of).norm(dim=-1, keepdim=True) * U * root_levels(n)
        erring = (g_noise * factor_of).norm(dim=-1, keepdim=True)
        exact = (g * factor_of).mean(-1, keepdim=True)
        terms = terms + times * ((summed + erring) / n + 2 * U * exact)
    rows = root_levels(x.numel() // n)
    sums = [
        _over_rows((gs_noise * k).square() + (rows * U * gs * k).square(), parameter).sqrt()
        for k, parameter in ((xhat.abs() + 0 * gs, weight), (1.0, bias))
    ]
    return rstd * terms, gs_noise, *sums


def _d_noise(x, residual, weight, bias, mean, rstd, f, of_mean):
    """The rounding errors of the difference, two products, two sums and the product with f."""
    w = 1.0 if weight is None else weight.double().abs()
    s = w * rstd * (7 * (x - mean).abs() + of_mean) + 2 * residual.abs()
    return U * f * (s if bias is None else s + 3 * bias.double().abs())


def _double(t):
    return None if t is None else t.double()


def inputs(c, device):
    parameter = F32 if c.param("weight") == "float32" else c.dtype
    given = {
        name: None
        if c.param(name) == "none"
        else tensor(c, name, device, dtype=parameter, shape=c.shape[-1:])
        for name in ("weight", "bias")
    }
    seed = torch.randint(2**63 - 1, (1,), generator=torch.Generator().manual_seed(c.seed))
    return {
        "x": tensor(c, "x", device),
        "residual": tensor(c, "residual", device),
        **given,
        "seed": None if c.param("seed") == "none" else seed.to(device),
        **{name: c.param(name) for name in ("p", "eps", "approximate")},
    }


def backward_inputs(c, device):
    args = {**inputs(c, device), "gy": tensor(c, "gy", device)}
    x, eps = args["x"], args.pop("eps")
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean(-1, keepdim=True)
    rstd = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + eps)
    return {**args, "mean": mean, "rstd": rstd}


def outputs(x, **others):
    wide = torch.promote_types(x.dtype, torch.float32)
    statistic = TensorSpec.contiguous((*x.shape[:-1], 1), wide)
    return TensorSpec.contiguous(x.shape, x.dtype), statistic, statistic


def backward_outputs(x, residual, weight, bias, **others):
    like = (TensorSpec.contiguous(t.shape, t.dtype) for t in (x, residual))
    return *like, *(
        TensorSpec.contiguous((0,), x.dtype)
        if t is None
        else TensorSpec.contiguous(t.shape, t.dtype)
        for t in (weight, bias)
    )


def cost(x, residual, weight, bias, **others):
    statistics = 8 * x.numel() // max(x.shape[-1], 1)
    reads = x.nbytes, residual.nbytes, _bytes(weight, bias)
    return Cost(reads, (x.nbytes, statistics), flops=30 * x.numel())


def backward_cost(gy, x, residual, weight, bias, mean, rstd, **others):
    reads = gy.nbytes, x.nbytes, residual.nbytes, _bytes(weight, bias, mean, rstd)
    writes = x.nbytes, residual.nbytes, _bytes(weight, bias)
    return Cost(reads, writes, flops=45 * x.numel())


def _bytes(*tensors):
    return sum(t.nbytes for t in tensors if t is not None)


FORWARD = Operator(
    name="layer_norm_residual_dropout_gelu",
    schema="(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, Tensor? seed, float p,"
    " float eps, str approximate) -> (Tensor y, Tensor mean, Tensor rstd)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    noise=noise,
    source="gelu(dropout(layer_norm(x) + residual)) of torch.nn.functional",
)
BACKWARD = Operator(
    name="layer_norm_residual_dropout_gelu.backward",
    schema="(Tensor gy, Tensor x, Tensor residual, Tensor? weight, Tensor? bias, Tensor mean,"
    " Tensor rstd, Tensor? seed, float p, str approximate)"
    " -> (Tensor gx, Tensor gresidual, Tensor gweight, Tensor gbias)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="rows",
    contiguous=("mean", "rstd"),
    noise=backward_noise,
    source="autograd of gelu(dropout(layer_norm(x) + residual))",
)
