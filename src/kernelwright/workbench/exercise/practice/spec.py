"""Practice's operators: float32, contiguous, small, with signatures that fit on one line."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import tensor
from kernelwright.contract.rounding import U

F32, I32 = torch.float32, torch.int32
BENCH = "as large as a step of training"


def _cases(
    *shapes: tuple[int, ...], bench: tuple[int, ...], dtype=F32, **params
) -> tuple[Case, ...]:
    small = tuple(case(s, dtype, **params) for s in shapes)
    return *small, case(bench, dtype, use="bench", label=BENCH, **params)


def _like(t, *shape: int, dtype=None) -> tuple[TensorSpec, ...]:
    return (TensorSpec.contiguous(shape, dtype or t.dtype),)


def _vector_inputs(c: Case, device: str) -> dict[str, Any]:
    return {"a": tensor(c, "a", device), "b": tensor(c, "b", device)}


def _positive(c: Case, device: str) -> dict[str, Any]:
    """Positive values: no terms cancel, so that an error is a mistake and not rounding."""
    return {"x": tensor(c, "x", device).abs()}


def _norm_inputs(c: Case, device: str) -> dict[str, Any]:
    """Values whose mean is not zero, so that it must be subtracted before squares are added."""
    columns = c.shape[-1:]
    return {
        "x": tensor(c, "x", device) + c.param("mean", 0.0),
        "weight": tensor(c, "weight", device, shape=columns),
        "bias": tensor(c, "bias", device, shape=columns),
        "eps": 1e-5,
    }


def _values(c: Case, device: str) -> dict[str, Any]:
    """Integers in [0, bins); small ones are far more frequent than large ones."""
    bins = c.param("bins", 64)
    drawn = tensor(c, "x", device, dtype=F32).abs() * bins / 4
    return {"x": drawn.to(I32).clamp(max=bins - 1), "bins": bins}


def norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias


def sums_noise(sums, n: int):
    """The rounding error of float32 in sums of n positive terms, in any order: up to n independent
    roundings of u times the sum. A single thread that adds a row is therefore right too."""
    return U * math.sqrt(n) * sums.double().abs()


def norm_noise(x, weight, bias, eps):
    """Rounding in float32 of the mean, of the difference from it, and of the sum with the bias."""
    x, n = x.double(), x.shape[-1]
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight.double().abs()
    of_mean = sums_noise(x.abs().mean(-1, keepdim=True), n)
    rounded = U * ((4 + math.sqrt(n)) * centred.abs() * scale + bias.double().abs())
    return (scale * of_mean + rounded,)


def count(x, bins):
    return torch.bincount(x.flatten(), minlength=bins).to(I32)


VECTOR_ADD = Operator(
    name="vector_add",
    schema="(Tensor a, Tensor b) -> (Tensor c)",
    reference=lambda a, b: a + b,
    inputs=_vector_inputs,
    cases=_cases((1,), (33,), (200,), (256,), (1000,), (40_001,), bench=(2**26,)),
    cost=lambda a, b: Cost(reads=(a.nbytes, b.nbytes), writes=(a.nbytes,), flops=a.numel()),
    outputs=lambda a, b: _like(a, *a.shape),
    source="torch.add",
)
TRANSPOSE = Operator(
    name="transpose",
    schema="(Tensor x) -> (Tensor y)",
    reference=lambda x: x.t().contiguous(),
    inputs=lambda c, device: {"x": tensor(c, "x", device)},
    cases=_cases((1, 7), (9, 20), (5, 33), (32, 32), (128, 96), (200, 131), bench=(8192, 8192)),
    cost=lambda x: Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=0),
    outputs=lambda x: _like(x, x.shape[1], x.shape[0]),
    layout="rows",
    exact=True,
    source="torch.t",
)
ROW_SUM = Operator(
    name="row_sum",
    schema="(Tensor x) -> (Tensor y)",
    reference=lambda x: x.sum(-1),
    inputs=_positive,
    cases=_cases((1, 5), (2, 64), (1, 200), (3, 33), (4, 256), (5, 3000), bench=(4096, 16384)),
    cost=lambda x: Cost(reads=(x.nbytes,), writes=(4 * x.shape[0],), flops=x.numel()),
    outputs=lambda x: _like(x, x.shape[0]),
    layout="rows",
    noise=lambda x: (sums_noise(x.sum(-1), x.shape[-1]),),
    source="torch.sum",
)
PREFIX_SUM = Operator(
    name="prefix_sum",
    schema="(Tensor x) -> (Tensor y)",
    reference=lambda x: x.cumsum(-1),
    inputs=_positive,
    cases=_cases((1, 5), (2, 64), (1, 200), (3, 33), (4, 128), (5, 700), bench=(4096, 4096)),
    cost=lambda x: Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=x.numel()),
    outputs=lambda x: _like(x, *x.shape),
    layout="rows",
    noise=lambda x: (sums_noise(x.cumsum(-1), x.shape[-1]),),
    source="torch.cumsum",
)
HISTOGRAM = Operator(
    name="histogram",
    schema="(Tensor x, int bins) -> (Tensor counts)",
    reference=count,
    inputs=_values,
    cases=(
        *_cases((1,), (100,), (3000,), (40_001,), bench=(2**26,), dtype=I32, bins=64),
        *_cases((5000,), bench=(2**26,), dtype=I32, bins=300),
    ),
    cost=lambda x, bins: Cost(reads=(x.nbytes,), writes=(4 * bins,), flops=x.numel()),
    outputs=lambda x, bins: _like(x, bins, dtype=I32),
    exact=True,
    source="torch.bincount",
)
LAYERNORM = Operator(
    name="layernorm",
    schema="(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor y)",
    reference=norm,
    inputs=_norm_inputs,
    cases=(
        *_cases((1, 8), (2, 33), (1, 200), (4, 256), (6, 1000), bench=(8192, 4096)),
        *_cases((3, 50), (5, 768), bench=(8192, 768), mean=30.0),
    ),
    cost=lambda x, weight, bias, eps: Cost(
        reads=(x.nbytes, weight.nbytes, bias.nbytes), writes=(x.nbytes,), flops=8 * x.numel()
    ),
    outputs=lambda x, weight, bias, eps: _like(x, *x.shape),
    layout="rows",
    noise=norm_noise,
    source="torch.nn.functional.layer_norm",
)
