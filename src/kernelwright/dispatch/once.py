"""Gradients that cannot be differentiated again, and calls whose gradients may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
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

    The Function must save an input that requires a gradient or one of its results (a loss is
    small): the gradients are made to depend on the saved tensors and on the incoming gradients, so
    that autograd reaches the error on every way to an input, also if it is told which inputs to
    differentiate by and skips everything else.

    PyTorch's `once_differentiable` treats the gradients of a constant incoming gradient as
    constants, so that a penalty on them would have no gradient and raise no error.
    """

    def of(backward: Callable) -> Callable:
        @wraps(backward)
        def guarded(ctx, *grads):
            if not torch.is_grad_enabled() or torch.compiler.is_dynamo_compiling():
                return backward(ctx, *grads)
            unpacked = _Unpacked(ctx)
            with torch.no_grad():
                gradients = backward(unpacked, *grads)
            sources = [t for t in (*grads, *unpacked.saved_tensors) if _differentiable(t)]
            if not sources:
                raise NotImplementedError(message)
            if isinstance(gradients, torch.Tensor):
                gradients = (gradients,)
            return tuple(
                g if g is None else _Refusing.apply(message, g, *sources) for g in gradients
            )

        return guarded

    return of


def _differentiable(t: torch.Tensor | None) -> bool:
    return t is not None and t.requires_grad


class _Unpacked:
    """A Function's context whose saved tensors are unpacked once, as a checkpoint requires."""

    def __init__(self, ctx: Any):
        self._ctx = ctx

    @cached_property
    def saved_tensors(self) -> tuple[torch.Tensor | None, ...]:
        return self._ctx.saved_tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _Refusing(torch.autograd.Function):
    """The identity of `tensor`, a function of `sources` whose gradient raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(message, tensor, *sources):
        return tensor.view_as(tensor)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.message = inputs[0]

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError(ctx.message)
