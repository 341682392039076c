"""Recomputes a norm's result in the backward instead of saving it.

The products that read a norm's result save it for the gradients of their weights. Recomputing it
takes one pass over the norm's input, which is saved anyway. In a layer of Llama, the results of two
norms are a seventh of what is saved per token.

A norm notes in its result how it was computed: the tensors themselves, with their versions. The
note stays with that tensor alone. A consumer that gets another tensor (from a hook, an adapter, a
full backward hook) or one that was changed in place saves what it gets, as in PyTorch.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernelwright.dispatch import override

_autograd = torch._C._autograd
_NAME = "_kernelwright_norm"


class _Wanted(threading.local):
    """Whether the norm that is called now is to leave a note in its result."""

    now = False


WANTED = _Wanted()


def noted(norm: torch.nn.Module, *args: torch.Tensor) -> Any:
    """The norm's result, with a note how it was computed, for `remade`."""
    if torch.compiler.is_compiling():
        return norm(*args)
    WANTED.now = True
    try:
        return norm(*args)
    finally:
        WANTED.now = False


def note(
    result: torch.Tensor, of: torch.Tensor, weight: torch.Tensor | None, eps: float, offset: float
) -> None:
    """Note in the result of `kw.rms_norm` how to compute it again.

    Args:
        of: the input, or the sum that was normalized.
    """
    if result.requires_grad:
        # not the tensors themselves: `p.data = ...` changes what a parameter refers to
        given = [t if t is None else t.detach() for t in (of, weight)]
        versions = [t if t is None else t._version for t in given]
        setattr(result, _NAME, (result._version, given, versions, eps, offset))


def remade(norm: torch.nn.Module, result: torch.Tensor) -> AbstractContextManager:
    """Inside the block, operators that save `result` for their backward save how to recompute it.

    Results are saved as usual if they are not a norm's own result, unchanged; if their dtype
    differs from the input's; if other hooks of saved tensors are active (checkpointing recomputes
    them anyway); under torch.compile and torch.func; and if FSDP shards the norm by itself: its
    weight is then not available in the backward of the operators that read the result.
    """
    if torch.compiler.is_compiling() or type(result) is not torch.Tensor:
        return _AS_USUAL
    taken = vars(result).pop(_NAME, None)
    if taken is None:
        return _AS_USUAL
    version, given, *how = taken
    if (
        version != result._version
        or result.dtype != given[0].dtype
        or type(norm).__name__.startswith("FSDP")
        or torch._C._are_functorch_transforms_active()
        or not _autograd._saved_tensors_hooks_is_enabled()
        or _autograd._top_saved_tensors_default_hooks(False) is not None
    ):
        return _AS_USUAL
    recomputed = _Recomputed(result, given, *how)
    return torch.autograd.graph.saved_tensors_hooks(recomputed.pack, _unpack)


_AS_USUAL = nullcontext()


class _Recomputed:
    """How to compute a norm's result, and the result itself between its first and last use."""

    def __init__(self, result, given, versions, eps, offset):
        self.at, self.shape, self.dtype = result.data_ptr(), result.shape, result.dtype
        self.version = result._version
        self.given, self.versions = given, versions
        self.eps, self.offset = eps, offset
        self.rung = override("rms_norm")
        self.uses = self.left = 0
        self.result: torch.Tensor | None = None

    def pack(self, t: torch.Tensor) -> Any:
        same = t.dtype == self.dtype and t.numel() == self.shape.numel() and t.is_contiguous()
        if not same or t.data_ptr() != self.at or t._version != self.version:
            return t
        self.uses += 1
        self.left = self.uses
        return self, t.shape

    def used(self) -> torch.Tensor:
        """The result. It is freed with its last use; the backward of a retained graph starts
        again."""
        if self.result is None:
            self._check()
            of, weight = self.given
            run = torch.ops.kernelwright.rms_norm
            with torch.no_grad():
                self.result = run(of, weight, self.eps, self.offset, rung=self.rung)[0]
        result = self.result
        self.left -= 1
        if self.left == 0:
            self.left, self.result = self.uses, None
        return result

    def _check(self) -> None:
        for name, t, version in zip(("input", "weight"), self.given, self.versions, strict=True):
            if t is not None and t._version != version:
                raise RuntimeError(
                    f"{name}: of a norm, needed for gradient computation, has been modified by an "
                    f"inplace operation: {list(t.shape)} is at version {t._version}; expected "
                    f"version {version} instead"
                )


def _unpack(kept: Any) -> torch.Tensor:
    if isinstance(kept, torch.Tensor):
        return kept
    recomputed, shape = kept
    return recomputed.used().view(shape)
