"""Derivatives of grouped products. The derivative with respect to the input is a grouped product
with transposed matrices; that with respect to the matrices is one product per group, summed over
its rows."""

from __future__ import annotations

import itertools

import torch

from kernelwright.dispatch import apply_of, vmap_loop
from kernelwright.ops.elementwise.glu import swiglu as gated

from . import ladder
from .torch_rungs import even


def _wants(*tensors: torch.Tensor) -> bool:
    """Whether a call must be visible to autograd or to a transform of torch.func."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return True
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def product(a, b, offsets):
    return _apply(a, b, offsets) if _wants(a, b) else ladder.grouped_mm(a, b, offsets)


def swiglu(a, b, offsets):
    """If a gradient is needed, both halves of the product are saved for it."""
    if _wants(a, b):
        gate, up = product(a, b, offsets).chunk(2, -1)
        return gated(gate, up)
    return ladder.grouped_swiglu(a, b, offsets)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(a, b, offsets):
        return ladder.grouped_mm(a, b, offsets)

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, offsets = inputs
        of_a, of_b, _ = ctx.needs_input_grad
        ctx.save_for_backward(a if of_b else None, b if of_a else None, offsets)
        ctx.along_k = b.stride(1) == 1

    @staticmethod
    def backward(ctx, gc):
        a, b, offsets = ctx.saved_tensors
        ga = None if b is None else product(gc, b.mT, offsets)
        if a is None:
            return ga, None, None
        if ctx.along_k:
            return ga, of_matrices(gc, a, offsets).mT, None
        return ga, of_matrices(a, gc, offsets), None

    @staticmethod
    def vmap(info, in_dims, *args):
        return vmap_loop(_Product.apply, info.batch_size, in_dims, args)


_apply = apply_of(_Product)


def of_matrices(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """a[rows of e]^T b[rows of e] for each group e: shape (E, columns of a, columns of b)."""
    return _of_matrices(a, b, offsets)


@torch.library.custom_op("kernelwright::grouped_matrices", mutates_args=())
def _of_matrices(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    if _taken(a) and _taken(b):
        return torch._grouped_mm(a.t(), b, offs=offsets.contiguous()).contiguous()
    bounds = [0, *offsets.tolist()]
    pairs = itertools.pairwise(bounds)
    return torch.stack([a[i:j].t() @ b[i:j] for i, j in pairs])


@_of_matrices.register_fake
def _(a, b, offsets):
    return a.new_empty(offsets.shape[0], a.shape[1], b.shape[1])


def _matrices_backward(ctx, g):
    a, b, offsets = ctx.saved_tensors
    return product(b, g.mT, offsets), product(a, g, offsets), None


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


_of_matrices.register_autograd(_matrices_backward, setup_context=_keep)


def _taken(t: torch.Tensor) -> bool:
    """Whether PyTorch's grouped product supports an operand whose rows are summed over."""
    if not t.is_cuda or t.dtype != torch.bfloat16 or torch.cuda.get_device_capability()[0] < 9:
        return False
    return t.numel() > 0 and t.stride(1) == 1 and even(t)
