"""scaled_mm: the mathematics. c = (scale_a a) (scale_b b)^T with 8-bit floating-point operands.

Scales are float32: one per tensor, per row, or per block of 1 x 128 elements of a and 128 x 128
elements of b.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.inputs import tensor

FP8 = torch.float8_e4m3fn
MOST = torch.finfo(FP8).max
BLOCK = 128
KINDS = ("tensor", "row", "block")
#: Roundoff of a sum on Hopper's tensor cores, which keep 13 bits of its fraction.
U_SUMS = 2.0**-13

# (m, n, k)
SHAPES = (
    (128, 256, 256),
    (200, 136, 320),
    (1, 128, 128),
    (70, 256, 144),
    (300, 384, 1040),
    (7, 9, 40),
    (1, 1, 1),
)
EMPTY = ((0, 16, 32), (16, 0, 32), (3, 8, 0))
SQUARES = (1024, 2048, 4096, 8192)
LAYERS = {
    (8192, 2304, 768): "GPT-2 attention input",
    (8192, 3072, 768): "GPT-2 MLP up",
    (8192, 768, 3072): "GPT-2 MLP down",
    (8192, 28672, 4096): "Llama 3 8B MLP up and gate",
    (8192, 4096, 14336): "Llama 3 8B MLP down",
}


def _of(m: int, n: int, k: int, kind: str, fast: bool = True, **params) -> Case:
    return case((m, k), torch.bfloat16, n=n, fast=fast, kind=kind, **params)


CASES = (
    *(_of(*s, kind, fast) for kind in KINDS for fast in (True, False) for s in (*SHAPES, *EMPTY)),
    *(
        _of(160, 144, 256, kind, layout=layout)
        for kind in KINDS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(_of(160, 128, 256, kind, values=v) for kind in KINDS for v in ("large", "nan", "inf")),
    *(
        _of(s, s, s, kind, fast, use="bench")
        for s in SQUARES
        for kind, fast in (("tensor", True), ("row", True), ("row", False), ("block", False))
    ),
    *(_of(*s, "row", use="bench", label=label) for s, label in LAYERS.items()),
    _of(2**21 + 1, 64, 1024, "row", use="big"),
)


def dequantized(a, b, scale_a, scale_b, kind, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Both operands, scaled, in `dtype`."""
    scales = scale_a, scale_b
    if kind == "block":
        tall = scale_a, scale_b.repeat_interleave(BLOCK, 0)[: b.shape[0]]
        scales = (s.repeat_interleave(BLOCK, 1)[:, : a.shape[1]] for s in tall)
    x, w = (t.to(dtype) * s.to(dtype) for t, s in zip((a, b), scales, strict=True))
    return x, w


def reference(a, b, scale_a, scale_b, kind, fast):
    x, w = dequantized(a, b, scale_a, scale_b, kind, a.dtype)
    return x @ w.t()


def inputs(c, device):
    (m, k), n, kind = c.shape, c.param("n"), c.param("kind")
    b = tensor(c, "b", device, shape=(n, k))
    return {
        "a": as_fp8(tensor(c, "a", device)),
        "b": as_fp8(b),
        "scale_a": _scale(c, "scale_a", device, m, k, 1),
        "scale_b": _scale(c, "scale_b", device, n, k, BLOCK),
        "kind": kind,
        "fast": c.param("fast"),
    }


def as_fp8(t: torch.Tensor) -> torch.Tensor:
    """The values as 8-bit numbers, in the same memory layout."""
    size = t.untyped_storage().size() // t.itemsize
    if t.device.type == "meta":
        flat = torch.empty(size, dtype=FP8, device="meta")
    else:
        flat = torch.as_strided(t, (size,), (1,), 0).clamp(-MOST, MOST).to(FP8)
    return torch.as_strided(flat, t.shape, t.stride(), t.storage_offset())


def _scale(c: Case, name: str, device: str, rows: int, k: int, high: int) -> torch.Tensor:
    shape = {
        "tensor": (1, 1),
        "row": (rows, 1),
        "block": (cdiv(rows, high), cdiv(k, BLOCK)),
    }[c.param("kind")]
    return tensor(c, name, device, shape=shape, dtype=torch.float32).abs_().add_(0.1)


def outputs(a, b, **others):
    return (TensorSpec.contiguous((a.shape[0], b.shape[0]), torch.bfloat16),)


def cost(a, b, scale_a, scale_b, kind, fast):
    (c,) = outputs(a, b)
    products = 2 * c.numel() * a.shape[1]
    reads = tuple(t.numel() * t.dtype.itemsize for t in (a, b, scale_a, scale_b))
    return Cost(reads, (c.nbytes,), products)


def noise(a, b, scale_a, scale_b, kind, fast):
    """A chain of sums on tensor cores: each product is aligned to the largest term, which may be
    the sum so far, and truncated. The chain covers all of k, or 128 elements, which are then added
    in float32."""
    chain = a.shape[1] if fast and kind != "block" else min(a.shape[1], BLOCK)
    u = U_SUMS * max((chain + 1) / 2, 1.0) ** 0.5
    x, w = dequantized(a, b, scale_a, scale_b, kind, torch.float64)
    return ((u * (x.square() @ w.square().t()).sqrt()).nan_to_num(0, 0, 0),)


OPERATOR = Operator(
    name="scaled_mm",
    schema="(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, str kind, bool fast)"
    " -> (Tensor c)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="torch._scaled_mm",
)
