"""quantized_linear: the mathematics. y = x w^T + bias, with a weight of 4 or 8 bits.

w = (v - zero) scale, where v are unsigned integers; `zero` and `scale` belong to groups of 128
along k.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, chain_noise, tensor_core_noise

from .weights import GROUP, dequantized, quantized

F32, F16, BF16 = FLOATS
# (m, n, k)
SHAPES = (
    (1, 130, 128),
    (3, 37, 256),
    (8, 129, 1024),  # several blocks share a tile's k
    (13, 260, 384),
    (30, 64, 128),
    (64, 200, 256),
    (70, 48, 128),
    (5, 1, 256),
)
EMPTY = ((0, 3, 128), (5, 0, 128), (3, 4, 0))
DECODED = {
    (8192, 8192): "32 MiB of 4 bits",
    (28672, 4096): "Llama 3 8B MLP up and gate",
    (28672, 8192): "Llama 3 70B MLP up",
}


def _of(m: int, n: int, k: int, dtype: torch.dtype, bits: int, **params) -> Case:
    return case((m, k), dtype, n=n, bits=bits, **params)


CASES = (
    *(_of(*s, d, 4) for d in FLOATS for s in (*SHAPES, *EMPTY)),
    *(_of(*s, BF16, 8) for s in (*SHAPES, *EMPTY)),
    *(_of(*s, d, 8) for d in (F32, F16) for s in SHAPES[:3]),
    *(_of(5, 72, 256, d, bits, bias=True) for d in FLOATS for bits in (4, 8)),
    *(
        _of(6, 72, 256, d, 4, layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(_of(5, 72, 256, d, 4, values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    *(
        _of(m, n, k, BF16, bits, use="bench", label=label)
        for (n, k), label in DECODED.items()
        for bits in (4, 8)
        for m in (16, 64)
        if m * k > 2**16  # cases with a small x are emulated, for any weight
    ),
    _of(2**24 + 1, 8, 128, BF16, 4, use="big"),
)


def reference(x, packed, scales, bias, bits):
    y = x @ dequantized(packed, scales, bits, x.dtype).t()
    return y if bias is None else y + bias


def inputs(c, device):
    (_, k), n, bits = c.shape, c.param("n"), c.param("bits")
    w = tensor(c, "weight", device, shape=(n, k), dtype=F32, scale=max(k, 1) ** -0.5)
    if device == "meta":
        packed = torch.empty(n, k * bits // 8, dtype=torch.uint8, device=device)
        scales = torch.empty(k // GROUP, n, 2, dtype=c.dtype, device=device)
    else:
        packed, scales = quantized(w, bits, c.dtype)
    bias = tensor(c, "bias", device, shape=(n,)) if c.param("bias") else None
    given = {"x": tensor(c, "x", device), "packed": packed, "scales": scales}
    return {**given, "bias": bias, "bits": bits}


def outputs(x, packed, **others):
    return (TensorSpec.contiguous((x.shape[0], packed.shape[0]), x.dtype),)


def cost(x, packed, scales, bias, bits):
    (y,) = outputs(x, packed)
    read = (t for t in (x, packed, scales, bias) if t is not None)
    return Cost(tuple(t.nbytes for t in read), (y.nbytes,), 2 * y.numel() * x.shape[1])


def noise(x, packed, scales, bias, bits):
    """The noise of the sums, as in `matmul`, and the rounding error of each weight in the dtype of
    the operands, which occurs in PyTorch."""
    k = x.shape[1]
    w = dequantized(packed, scales.double(), bits, torch.float64)
    squares = x.double().square() @ w.square().t()
    if x.dtype == F32:
        size = chain_noise(k, squares, x.double() @ w.t())
    else:
        size = tensor_core_noise(k, squares)
    return (U * size + torch.finfo(x.dtype).eps / 2 / 3**0.5 * squares.sqrt(),)


OPERATOR = Operator(
    name="quantized_linear",
    schema="(Tensor x, Tensor packed, Tensor scales, Tensor? bias, int bits) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="torch.nn.functional.linear of a dequantized weight",
)
