"""Derivatives of grouped products. The derivative with respect to the input is a grouped product
with transposed matrices; that with respect to the matrices is one product per group, summed over
its rows."""

from __future__ import annotations

import itertools

import torch

from kernelwright.contract import TensorSpec
from kernelwright.dispatch import Rule, bind, compose, entry_of, operator, recorded
from kernelwright.ops.elementwise.glu import swiglu as gated

from .ladder import LADDER, LADDER_SWIGLU
from .torch_rungs import even


def _save(ctx, inputs, output):
    a, b, offsets = inputs
    of_a, of_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if of_b else None, b if of_a else None, offsets)
    ctx.along_k = b.stride(1) == 1


def _backward(ctx, gc):
    a, b, offsets = ctx.saved_tensors
    ga = None if b is None else product(gc, b.mT, offsets)
    if a is None:
        return ga, None, None
    if ctx.along_k:
        return ga, of_matrices(gc, a, offsets).mT, None
    return ga, of_matrices(a, gc, offsets), None


def _formula(a, b, offsets):
    """The product by PyTorch: of each group's rows, or under torch.compile, which does not know
    them, of all rows by each matrix."""
    if not torch.compiler.is_compiling():
        return entry_of(LADDER, LADDER.rung("native"))(a, b, offsets)
    row = torch.arange(a.shape[0], device=a.device)
    group = torch.searchsorted(offsets, row, right=True, out_int32=True).unsqueeze(1)
    parts = [torch.where(group == e, a, 0.0) @ b[e] for e in range(b.shape[0])]
    return torch.stack(parts).sum(0)


product = bind(LADDER, rule=Rule(_save, _backward), vmap="loop", differentiable=_formula)


def swiglu(a, b, offsets):
    """If a gradient is needed, both halves of the product are saved for it."""
    if recorded(a, b):
        return _through_halves(a, b, offsets)
    return _swiglu(a, b, offsets)


def _through_halves(a, b, offsets):
    gate, up = product(a, b, offsets).chunk(2, -1)
    return gated(gate, up)


def _swiglu_formula(a, b, offsets):
    gate, up = _formula(a, b, offsets).chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def _save_operands(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _swiglu_backward(ctx, gy):
    """Computes the product again: for calls of the operator itself."""
    a, b, offsets = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:2]

    def of(*some):
        given = iter(some)
        both = (next(given) if w else t for t, w in zip((a, b), wanted, strict=True))
        return _through_halves(*both, offsets)

    differentiated = [t for t, w in zip((a, b), wanted, strict=True) if w]
    pulled = iter(torch.func.vjp(of, *differentiated)[1](gy))
    return *(next(pulled) if w else None for w in wanted), None


_swiglu = bind(
    LADDER_SWIGLU,
    rule=Rule(_save_operands, _swiglu_backward),
    vmap="loop",
    differentiable=_swiglu_formula,
)


def of_matrices(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """a[rows of e]^T b[rows of e] for each group e: shape (E, columns of a, columns of b)."""
    return _of_matrices(a, b, offsets)


def _matrices(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, rung: None) -> torch.Tensor:
    if _taken(a) and _taken(b):
        return torch._grouped_mm(a.t(), b, offs=offsets.contiguous()).contiguous()
    return _matrices_formula(a, b, offsets)


def _matrices_formula(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    bounds = [0, *offsets.tolist()]
    pairs = itertools.pairwise(bounds)
    return torch.stack([a[i:j].t() @ b[i:j] for i, j in pairs])


def _matrices_specs(a, b, offsets):
    shape = offsets.shape[0], a.shape[1], b.shape[1]
    return (TensorSpec.contiguous(shape, a.dtype),)


def _matrices_backward(ctx, g):
    a, b, offsets = ctx.saved_tensors
    return product(b, g.mT, offsets), product(a, g, offsets), None


_of_matrices = compose(
    operator(
        "grouped_matrices", "(Tensor a, Tensor b, Tensor offsets) -> (Tensor y)", _matrices_specs
    ),
    _matrices,
    Rule(_save_operands, _matrices_backward),
    _matrices_formula,
    opaque=True,
)


def _taken(t: torch.Tensor) -> bool:
    """Whether PyTorch's grouped product supports an operand whose rows are summed over."""
    if not t.is_cuda or t.dtype != torch.bfloat16 or torch.cuda.get_device_capability()[0] < 9:
        return False
    return t.numel() > 0 and t.stride(1) == 1 and even(t)
