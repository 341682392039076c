"""Gradients that cannot be differentiated again, and calls whose gradients may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    if torch.compiler.is_dynamo_compiling():  # cannot trace how many transforms there are
        return True
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009
    levels = functorch.get_interpreter_stack() or []
    gradients = sum(x.key() == functorch.TransformType.Grad for x in levels)
    return gradients > 1 or (gradients == 1 and any(map(_required_outside, tensors)))


def recorded(*tensors: torch.Tensor | None) -> bool:
    """Whether a gradient by one of the tensors may be asked for. Transforms of torch.func do not
    always say so, least of all to torch.compile."""
    if not torch.is_grad_enabled():
        return False
    return torch._C._are_functorch_transforms_active() or any(map(_differentiable, tensors))


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
            unpacked = ctx if isinstance(ctx, Unpacked) else Unpacked(ctx)
            with torch.no_grad():
                gradients = backward(unpacked, *grads)
            sources = [t for t in (*grads, *unpacked.saved_tensors) if _differentiable(t)]
            if not sources and not unpacked.ended:
                raise NotImplementedError(message)
            if isinstance(gradients, torch.Tensor):
                gradients = (gradients,)
            return tuple(g if g is None else refusing(message, g, sources) for g in gradients)

        return guarded

    return of


def _differentiable(t: torch.Tensor | None) -> bool:
    return t is not None and t.requires_grad


def alive(t: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor itself instead of functorch's wrapper for a level that has ended, after which the
    function that `torch.func.vjp` returns is called."""
    functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009
    return t if t is None else functorch.unwrap_if_dead(t)


class Unpacked:
    """A Function's context whose saved tensors are unpacked once, as a checkpoint requires, and are
    `alive`.

    Attributes:
        ended: whether they were saved in a level of functorch that has ended, of which nothing can
            be differentiated again.
    """

    def __init__(self, ctx: Any):
        self._ctx = ctx
        self.ended = False

    @cached_property
    def saved_tensors(self) -> tuple[torch.Tensor | None, ...]:
        saved = self._ctx.saved_tensors
        tensors = tuple(map(alive, saved))
        self.ended = any(t is not a for t, a in zip(saved, tensors, strict=True))
        return tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def refusing(
    message: str, tensor: torch.Tensor, sources: Sequence[torch.Tensor | None]
) -> torch.Tensor:
    """The tensor as a function of sources that cannot be differentiated: that raises
    NotImplementedError with this message."""
    return _Refusing.apply(message, tensor, *sources)  # pyright: ignore[reportReturnType]


class _Refusing(torch.autograd.Function):
    """See `refusing`."""

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
