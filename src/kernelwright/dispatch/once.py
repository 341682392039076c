"""Gradients that cannot be differentiated again, and calls whose gradients will be."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd import forward_ad


def differentiated_again() -> bool:
    """Whether a call stands in forward mode, or in torch.func's transforms where a gradient is
    itself differentiated."""
    if forward_ad._current_level >= 0:
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009
    levels = functorch.get_interpreter_stack() or []
    return sum(x.key() == functorch.TransformType.Grad for x in levels) > 1


def once(message: str) -> Callable:
    """For a Function's backward that computes in plain tensors: its gradients raise
    NotImplementedError with this message where somebody differentiates them.

    PyTorch's `once_differentiable` lets gradients of a constant incoming gradient pass as
    constants, so that a penalty on them would have no gradient and no error.
    """

    def of(backward: Callable) -> Callable:
        @wraps(backward)
        def guarded(ctx, *grads):
            with torch.no_grad():
                found = backward(ctx, *grads)
            watched = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
            if watched or not torch.is_grad_enabled():
                return found
            anchor = torch.zeros((), requires_grad=True)
            return tuple(t if t is None else _Refusing.apply(anchor, t, message) for t in found)

        return guarded

    return of


class _Refusing(torch.autograd.Function):
    """A tensor, whose gradient raises."""

    @staticmethod
    def forward(ctx, anchor, tensor, message):
        ctx.message = message
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(ctx.message)
