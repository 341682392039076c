"""accumulate_weight_grad_: the mathematics. total += gy^T x: the gradient of a linear layer's
weight, added to float32 sums of many steps."""

from __future__ import annotations

import torch

from kernelwright.contract import Case, Cost, Operator, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, chain_noise, tensor_core_noise

F32, _, BF16 = FLOATS
# (tokens, outputs, inputs)
SHAPES = (
    (64, 128, 256),
    (200, 136, 72),
    (70, 8, 264),
    (5, 24, 16),
    (1, 1, 1),
    (33, 7, 5),
)
EMPTY = ((0, 16, 24), (6, 0, 24), (6, 16, 0))
LAYERS = {
    (8192, 3072, 768): "GPT-2 MLP up",
    (8192, 28672, 4096): "Llama 3 8B MLP up and gate",
}


def _of(tokens: int, n: int, k: int, dtype: torch.dtype, **params) -> Case:
    return case((tokens, n), dtype, k=k, **params)


CASES = (
    *(_of(*s, d) for d in FLOATS for s in (*SHAPES, *EMPTY)),
    *(_of(72, 40, 64, d, layout=x) for d in FLOATS for x in ("sliced", "permuted", "offset")),
    *(_of(40, 24, 32, d, values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    *(_of(*s, BF16, use="bench", label=label) for s, label in LAYERS.items()),
    _of(16, 2**27 + 8, 8, BF16, use="big"),
)


def reference(total, gy, x):
    total += gy.t() @ x


def inputs(c, device):
    (tokens, n), k = c.shape, c.param("k")
    return {
        "total": tensor(c, "total", device, shape=(n, k, 1), dtype=F32).squeeze(-1),
        "gy": tensor(c, "gy", device),
        "x": tensor(c, "x", device, shape=(tokens, k, 1)).squeeze(-1),
    }


def cost(total, gy, x):
    products = 2 * total.numel() * gy.shape[0]
    sums = total.numel() * 4
    reads = (gy.numel() * gy.dtype.itemsize, x.numel() * x.dtype.itemsize, sums)
    return Cost(reads, (sums,), products)


def noise(total, gy, x):
    """The noise of a product over tokens, and of one more addition."""
    tokens = gy.shape[0]
    squares = gy.double().square().t() @ x.double().square()
    if gy.dtype == F32:
        size = chain_noise(tokens, squares, gy.double().t() @ x.double())
    else:
        size = tensor_core_noise(tokens, squares)
    return ((U * (size + total.double().abs())).nan_to_num(0, 0, 0),)


OPERATOR = Operator(
    name="accumulate_weight_grad_",
    schema="(Tensor(a!) total, Tensor gy, Tensor x) -> ()",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=lambda **args: (),
    layout="any",
    noise=noise,
    source="Megatron-LM's wgrad_gemm_accum_fp32",
)
