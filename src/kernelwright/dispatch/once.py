"""Gradients that cannot be differentiated again, and calls whose gradients may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd import forward_ad


def differentiated_again(*tensors: torch.Tensor | None) -> bool:
    """Whether a call is made in forward mode, or in transforms of torch.func in which a gradient is
    itself differentiated: by another transform, or by autograd because a tensor requires a gradient
    outside of them."""
    if forward_ad._current_level >= 0:
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009
    levels = functorch.get_interpreter_stack() or []
    gradients = sum(x.key() == functorch.TransformType.Grad for x in levels)
    return gradients > 1 or (gradients == 1 and any(map(_required_outside, tensors)))


def _required_outside(t: torch.Tensor | None) -> bool:
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009
    while t is not None and functorch.is_functorch_wrapped_tensor(t):
        t = functorch.get_unwrapped(t)
    return t is not None and t.requires_grad


def once(message: str) -> Callable:
    """A decorator for a Function's backward that computes on plain tensors: differentiating its
    gradients raises NotImplementedError with this message.

    PyTorch's `once_differentiable` treats the gradients of a constant incoming gradient as
    constants, so that a penalty on them would have no gradient and raise no error.
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
    """The identity, whose gradient raises."""

    @staticmethod
    def forward(ctx, anchor, tensor, message):
        ctx.message = message
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(ctx.message)
