"""matmul: the mathematics. c = a b over the last two dimensions, for one pair or a batch of them.

One operator computes a product and both of its gradients, since it takes any strides: ga = gc b^T
and gb = a^T gc are products of transposed views. `linear` is the product with a weight whose rows
correspond to outputs, followed by an epilogue: z = x w^T + bias, y = activation(z) * gate +
residual.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, chain_noise, tensor_core_noise
from kernelwright.ops.elementwise import _activations

F32, F16, BF16 = FLOATS
#: Unit roundoff of an operand in tf32, whose fraction has 10 bits.
U_TF32 = 2.0**-11

# Shapes (m, n, k). The shape of a case is that of `a`; `n` and the layout of b are parameters.
SMALL = (
    (7, 3, 5),
    (64, 64, 64),
    (33, 17, 40),
    (70, 130, 37),  # no size divides a tile
    (40, 24, 300),  # several tiles along k
    (128, 128, 32),  # whole tiles
    (1, 9, 40),
    (9, 1, 40),
    (16, 8, 1),
)
# few rows of one operand, or few columns of the other: the rows of the weight are along k
FEW_ROWS = (
    (1, 130, 264),
    (3, 37, 136),
    (8, 129, 1032),  # several blocks share a tile's k
    (30, 64, 128),
    (61, 200, 200),
)
FEW_COLUMNS = ((130, 1, 264), (300, 5, 136), (200, 20, 200))
EMPTY = ((0, 3, 5), (5, 0, 8), (3, 4, 0))
LAYOUTS = ("sliced", "permuted", "offset", "expanded")
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
# weights stored as (n, k), as in linear layers
LAYERS = {
    (8192, 2304, 768): "GPT-2 attention input",
    (8192, 3072, 768): "GPT-2 MLP up",
    (8192, 768, 3072): "GPT-2 MLP down",
    (8192, 50304, 768): "GPT-2 head",
    (8192, 28672, 4096): "Llama 3 8B MLP up and gate",
    (8192, 4096, 14336): "Llama 3 8B MLP down",
    (128, 4096, 14336): "Llama 3 8B MLP down, 128 tokens",
    (4096, 4096, 65536): "long k",
}
# weights (n, k) as the left operand, multiplied by few tokens
DECODED = {
    (4096, 4096): "Llama 3 8B attention output",
    (28672, 4096): "Llama 3 8B MLP up and gate, few tokens",
    (4096, 14336): "Llama 3 8B MLP down, few tokens",
}
# a is gy^T, (n, tokens); b is x, (tokens, k)
WEIGHT_GRADIENTS = {
    (3072, 768, 8192): "GPT-2 MLP up, weight gradient",
    (28672, 4096, 8192): "Llama 3 8B MLP up and gate, weight gradient",
}


def _of(m: int, n: int, k: int, dtype: torch.dtype, batch: int | None = None, **params) -> Case:
    return case((m, k) if batch is None else (batch, m, k), dtype, n=n, **params)


def _verified(d: torch.dtype) -> tuple[Case, ...]:
    return (
        *(_of(*mnk, d) for mnk in (*SMALL, *EMPTY)),
        *(_of(20, 12, 24, d, batch) for batch in (3, 1, 0)),
        *(_of(24, 36, 40, d, layout=x) for x in LAYOUTS),
        *(_of(24, 36, 40, d, b=x) for x in LAYOUTS),
        *(_of(24, 36, 40, d, batch=3, layout=x) for x in (*LAYOUTS[:1], *LAYOUTS[2:])),
        *(_of(24, 36, 40, d, batch=3, b=x) for x in ("sliced", "transposed", "expanded")),
        # whole 16-byte lines, in each order, that no tile divides
        *(
            _of(48, 72, 56, d, layout=a, b=b)
            for a in ("contiguous", "permuted")
            for b in ("contiguous", "permuted")
        ),
        _of(48, 72, 56, d, 2),
        _of(24, 36, 40, d, layout="permuted", b="permuted"),
        _of(23, 37, 41, d, layout="permuted", b="permuted"),
        *(_of(20, 24, 34, d, values=v) for v in ("large", "nan", "inf", "constant")),
        _of(20, 24, 34, d, b_values="nan"),
    )


CASES = (
    *(c for d in FLOATS for c in _verified(d)),
    *(_of(*mnk, d, b="permuted") for d in FLOATS for mnk in (*FEW_ROWS, *FEW_COLUMNS)),
    *(_of(5, 72, 136, d, b="permuted", values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    # a k that is long enough for eight blocks
    *(_of(72, 136, 520, d) for d in (F16, BF16)),
    *(_of(33, 17, 40, F32, tf32=True, b=b) for b in ("contiguous", "permuted")),
    *(_of(s, s, s, BF16, use="bench") for s in SQUARES),
    *(_of(s, s, s, F16, use="bench") for s in (4096, 8192)),
    *(_of(s, s, s, F32, use="bench") for s in (1024, 4096, 8192)),
    *(_of(s, s, s, F32, use="bench", tf32=True) for s in (4096, 8192)),
    *(_of(*s, BF16, use="bench", label=label, b="permuted") for s, label in LAYERS.items()),
    *(
        _of(*s, BF16, use="bench", label=label, layout="permuted")
        for s, label in WEIGHT_GRADIENTS.items()
    ),
    *(
        _of(*wide, m, deep, BF16, use="bench", label=label, b="permuted")
        for (*wide, deep), label in DECODED.items()
        for m in (1, 4, 16, 64)
    ),
    *(_of(8192, m, 8192, F32, use="bench", b="permuted") for m in (1, 8)),
    _of(1024, 1024, 64, BF16, batch=128, use="bench", b="transposed", label="attention scores"),
    _of(2**17 + 1, 64, 16384, BF16, use="big"),
    _of(2**16 + 1, 2**15, 64, BF16, use="big"),
)


def reference(a, b, tf32=False):
    return a @ b


def inputs(c, device):
    *batch, _, k = c.shape
    shape = (*batch, k, c.param("n"))
    return {
        "a": tensor(c, "a", device),
        "b": _operand(c, shape, c.param("b", "contiguous"), device),
        "tf32": c.param("tf32", False),
    }


def _operand(c: Case, shape: tuple[int, ...], layout: str, device: str) -> torch.Tensor:
    """b of a case, with its own layout and values. "transposed" exchanges the last two dimensions
    in memory; "permuted" reverses all, which is the same for two dimensions."""
    own = replace(c, shape=shape, values=c.param("b_values", "normal"), layout="contiguous")
    if layout == "transposed":
        turned = (*shape[:-2], shape[-1], shape[-2])
        return tensor(replace(own, shape=turned), "b", device).mT
    return tensor(replace(own, layout=layout), "b", device)


def outputs(a, b, tf32=False):
    return (TensorSpec.contiguous((*a.shape[:-1], b.shape[-1]), a.dtype),)


def stored(t) -> int:
    """Bytes of the distinct elements of a tensor: an expanded dimension is stored once."""
    kept = (n for n, s in zip(t.shape, t.stride(), strict=True) if s != 0 or n == 0)
    return math.prod(kept) * t.dtype.itemsize


def kind(dtype: torch.dtype, tf32: bool) -> str:
    """The name of the operands' type in `Cost.products`."""
    return "tf32" if tf32 and dtype == torch.float32 else SHORT[dtype]


def cost(a, b, tf32=False):
    (c,) = outputs(a, b)
    products = 2 * c.numel() * a.shape[-1]
    return Cost((stored(a), stored(b)), (c.nbytes,), products, {kind(a.dtype, tf32): products})


def noise(a, b, tf32=False):
    return (_noise(a, b, tf32),)


def _noise(a, b, tf32):
    """The error of the accumulation in float32, for each result.

    float32 operands: a chain of k multiply-adds in a register, as in every kernel that keeps a tile
    of sums in registers, including cuBLAS's kernels for results that fill the GPU. For few results,
    cuBLAS divides k among threads and blocks and has a smaller error; but shorter chains are not a
    property of the operator.
    16-bit operands: tensor cores add 16 products at a time and truncate each sum.
    Operands that are rounded to tf32 have their own independent roundoff in addition.
    """
    k = a.shape[-1]
    squares = a.double().square() @ b.double().square()
    if a.dtype != torch.float32:
        return U * tensor_core_noise(k, squares)
    chain = U * chain_noise(k, squares, a.double() @ b.double())
    return chain + 2**0.5 * U_TF32 * squares.sqrt() if tf32 else chain


OPERATOR = Operator(
    name="matmul",
    schema="(Tensor a, Tensor b, bool tf32=False) -> (Tensor c)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="torch.matmul",
)

# linear

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
EPILOGUES = (
    {"bias": True},
    *({"bias": True, "activation": x, "keep": True} for x in ACTIVATIONS[1:]),
    {"activation": "silu", "gate": True},
    {"bias": True, "residual": True},
    {"bias": True, "activation": "gelu", "gate": True, "residual": True, "keep": True},
)
# (tokens, outputs, inputs)
BENCH = (
    ((8192, 2304, 768), {"bias": True}, "GPT-2 attention input"),
    ((8192, 3072, 768), {"bias": True, "activation": "gelu_tanh"}, "GPT-2 MLP up"),
    ((8192, 768, 3072), {"bias": True, "residual": True}, "GPT-2 MLP down"),
    ((4096, 16384, 4096), {"bias": True, "activation": "gelu_tanh"}, ""),
    ((8192, 14336, 4096), {"activation": "silu", "gate": True}, "Llama 3 8B MLP gate"),
    ((8192, 4096, 14336), {"residual": True}, "Llama 3 8B MLP down"),
)
LINEAR_CASES = (
    *(_of(33, 17, 40, d, **e) for d in FLOATS for e in EPILOGUES),
    *(_of(*mnk, d, bias=True) for d in FLOATS for mnk in (SMALL[1], *SMALL[3:], *EMPTY)),
    *(_of(72, 136, 520, d, **e) for d in (F16, BF16) for e in EPILOGUES),
    *(_of(24, 36, 40, d, layout=x, bias=True) for d in FLOATS for x in LAYOUTS),
    *(_of(*mnk, d, bias=True) for d in FLOATS for mnk in FEW_ROWS),
    *(_of(8, 129, 1032, d, **e) for d in FLOATS for e in EPILOGUES[1:]),
    *(_of(5, 72, 136, d, values=v, bias=True) for d in FLOATS for v in ("nan", "inf")),
    *(_of(20, 24, 34, d, values=v, bias=True, activation="relu") for d in FLOATS
      for v in ("large", "nan", "inf")),
    _of(33, 17, 40, F32, tf32=True, bias=True),
    *(_of(*s, BF16, use="bench", label=label, **e) for s, e, label in BENCH),
    _of(8192, 3072, 768, BF16, use="bench", bias=True, activation="gelu_tanh", keep=True,
        label="GPT-2 MLP up, for training"),
    _of(8192, 3072, 768, F32, use="bench", bias=True, activation="gelu_tanh"),
    _of(2**17 + 1, 64, 16384, BF16, use="big", bias=True),
    _of(2**16 + 1, 2**15, 64, BF16, use="big", bias=True),
)  # fmt: skip


def activated(z, activation: str):
    """activation(z), computed without formulas that cancel."""
    if activation == "relu":
        return z.relu()
    if activation == "silu":
        return _activations.silu(z)
    if activation == "none":
        return z
    return _activations.gelu(z, "tanh" if activation == "gelu_tanh" else "none")


def linear_reference(x, weight, bias, gate, residual, activation, keep, tf32=False):
    z = x @ weight.t()
    z = z if bias is None else z + bias
    y = activated(z, activation)
    y = y if gate is None else y * gate
    y = y if residual is None else y + residual
    return y, z if keep else x.new_empty(0)


def linear_inputs(c, device):
    m, k = c.shape
    n = c.param("n")

    def maybe(name, *shape):
        return tensor(c, name, device, shape=shape) if c.param(name) else None

    return {
        "x": tensor(c, "x", device),
        "weight": tensor(c, "weight", device, shape=(n, k), scale=max(k, 1) ** -0.5),
        "bias": maybe("bias", n),
        "gate": maybe("gate", m, n),
        "residual": maybe("residual", m, n),
        "activation": c.param("activation", "none"),
        "keep": c.param("keep", False),
        "tf32": c.param("tf32", False),
    }


def linear_outputs(x, weight, keep, **others):
    y = TensorSpec.contiguous((x.shape[0], weight.shape[0]), x.dtype)
    return y, y if keep else TensorSpec.contiguous((0,), x.dtype)


def linear_cost(x, weight, bias, gate, residual, keep, tf32=False, **others):
    y, z = linear_outputs(x, weight, keep)
    products = 2 * y.numel() * x.shape[-1]
    given = (t for t in (x, weight, bias, gate, residual) if t is not None)
    return Cost(
        tuple(map(stored, given)), (y.nbytes, z.nbytes), products, {kind(x.dtype, tf32): products}
    )


def linear_noise(x, weight, bias, gate, residual, activation, keep, tf32=False):
    """The noise of z times the slope of the following steps, and that of each of these steps."""
    z = x.double() @ weight.double().t()
    of_z = _noise(x, weight.mT, tf32)
    if bias is not None:
        z = z + bias.double()
        of_z = of_z + U * z.abs()
    h, of_h = activated(z, activation), of_z
    if activation == "silu":
        of_h = of_z * _activations.silu_slope(z).abs() + _activations.silu_noise(z)
    elif activation.startswith("gelu"):
        form = "tanh" if activation == "gelu_tanh" else "none"
        slope = _activations.gelu_slope(z, form).abs()
        of_h = of_z * slope + _activations.gelu_noise(z, form)
    if gate is not None:
        h = h * gate.double()
        of_h = of_h * gate.double().abs() + U * h.abs()
    if residual is not None:
        of_h = of_h + U * (h + residual.double()).abs()
    bounds = (of_h, of_z if keep else x.new_empty(0).double())
    return tuple(t.nan_to_num(0, 0, 0) for t in bounds)


LINEAR = Operator(
    name="linear",
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? gate, Tensor? residual,"
    " str activation, bool keep, bool tf32=False) -> (Tensor y, Tensor z)",
    reference=linear_reference,
    inputs=linear_inputs,
    cases=LINEAR_CASES,
    cost=linear_cost,
    outputs=linear_outputs,
    layout="any",
    noise=linear_noise,
    source="torch.nn.functional.linear",
)
