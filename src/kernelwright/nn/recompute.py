"""Recomputes a tensor in the backward of the operators that read it, instead of saving it.

The products that read the result of a norm or of an activation save it for the gradients of their
weights. One pass over that operator's inputs, which its own backward saves anyway, computes it
again: a small share of the time of the product that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

_autograd = torch._C._autograd
Hooks = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]


def recomputed_product(
    product: Callable[[torch.Tensor], torch.Tensor],
    activate: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    again: Callable[..., torch.Tensor] | None = None,
) -> torch.Tensor:
    """product(activate(*inputs)), whose backward recomputes the activation's result.

    Unlike with a checkpoint around both, the product is not recomputed.

    Args:
        activate: an operator without randomness.
        again: computes its result in the backward, with the same bits; by default `activate`.
    """
    if not torch.is_grad_enabled():
        return product(activate(*inputs))
    if torch.compiler.is_compiling():  # supports no hooks, but does not recompute the product
        hidden = checkpoint(activate, *inputs, use_reentrant=False, preserve_rng_state=False)
        return product(hidden)
    hidden = activate(*inputs)
    if not recomputable(hidden):
        return product(hidden)
    with Recomputed(hidden, again or activate, inputs).saved():
        return product(hidden)


def recomputable(result: torch.Tensor) -> bool:
    """Whether hooks may replace a tensor that is saved: not under torch.func, and not a tensor
    subclass, whose data may be elsewhere, except for a fake one."""
    return (
        type(result) in (torch.Tensor, FakeTensor)
        and not torch._C._are_functorch_transforms_active()
        and _autograd._saved_tensors_hooks_is_enabled()
    )


def active_hooks() -> Hooks | None:
    """The hooks of saved tensors that are in effect: those of the innermost block."""
    return _autograd._top_saved_tensors_default_hooks(False)


class Recomputed:
    """How to compute a tensor, and the tensor itself between its first and its last use.

    The inputs' versions are compared in the backward: a change in place after the forward is the
    error that autograd raises. Other hooks of saved tensors, for example those of a checkpoint, see
    the inputs in place of the tensor.

    Args:
        result: the tensor; not kept.
        compute: called with the inputs, without gradients.
        inputs: tensors, or None.
    """

    def __init__(
        self,
        result: torch.Tensor,
        compute: Callable[..., torch.Tensor],
        inputs: Sequence[torch.Tensor | None],
    ):
        self.at, self.shape, self.dtype = _place(result), result.shape, result.dtype
        self.version = result._version
        self.compute = compute
        # not the tensors themselves: `p.data = ...` changes what a parameter refers to
        self.inputs: list[Any] = [t if t is None else t.detach() for t in inputs]
        self.versions = [t if t is None else t._version for t in inputs]
        self.outer: Hooks | None = None
        self.uses = self.left = 0
        self.result: torch.Tensor | None = None

    def saved(self) -> AbstractContextManager:
        """Inside the block, operators that save the tensor for their backward save its inputs."""
        self.outer = active_hooks()
        return saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, t: torch.Tensor) -> Any:
        same = t.dtype == self.dtype and t.numel() == self.shape.numel() and t.is_contiguous()
        if not same or _place(t) != self.at or t._version != self.version:
            return _Packed(self.outer[1], self.outer[0](t)) if self.outer else t
        if self.outer and not self.uses:
            pack, _ = self.outer
            self.inputs = [t if t is None else pack(t) for t in self.inputs]
        self.uses += 1
        self.left = self.uses
        return self, t.shape

    def used(self) -> torch.Tensor:
        """The tensor. It is freed with its last use; the backward of a retained graph starts
        again."""
        if self.result is None:
            with torch.no_grad():
                self.result = self.compute(*self._unpacked())
        result = self.result
        self.left -= 1
        if self.left == 0:
            self.left, self.result = self.uses, None
        return result

    def _unpacked(self) -> list[torch.Tensor | None]:
        if self.outer:
            _, unpack = self.outer
            return [t if t is None else unpack(t) for t in self.inputs]
        for t, version in zip(self.inputs, self.versions, strict=True):
            if t is not None and t._version != version:
                raise RuntimeError(
                    f"inputs: a tensor needed for gradient computation has been modified by an "
                    f"inplace operation: {list(t.shape)} is at version {t._version}; expected "
                    f"version {version} instead"
                )
        return self.inputs


def _place(t: torch.Tensor) -> tuple[int, Any]:
    """Where a tensor begins; a fake tensor has no address."""
    return t.untyped_storage()._cdata, t.storage_offset()


class _Packed:
    """What other hooks made of a tensor."""

    def __init__(self, unpack: Callable[[Any], torch.Tensor], packed: Any):
        self.unpack, self.packed = unpack, packed


def _unpack(kept: Any) -> torch.Tensor:
    if isinstance(kept, torch.Tensor):
        return kept
    if isinstance(kept, _Packed):
        return kept.unpack(kept.packed)
    recomputed, shape = kept
    return recomputed.used().view(shape)
