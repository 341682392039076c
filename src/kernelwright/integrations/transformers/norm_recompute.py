"""Recomputes a norm's result in the backward instead of saving it.

In a layer of Llama, the results of two norms are a seventh of what is saved per token.

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
from kernelwright.nn.recompute import Recomputed, active_hooks, recomputable

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
    if not result.requires_grad or result.dtype != of.dtype or not recomputable(result):
        return
    rung = override("rms_norm")

    def compute(of: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return torch.ops.kernelwright.rms_norm(of, weight, eps, offset, rung=rung)[0]

    setattr(result, _NAME, Recomputed(result, compute, (of, weight)))


def remade(norm: torch.nn.Module, result: torch.Tensor) -> AbstractContextManager:
    """Inside the block, operators that save `result` for their backward save how to recompute it.

    Results are saved as usual if they are not a norm's own result, unchanged; if their dtype
    differs from the input's; if other hooks of saved tensors are active (checkpointing recomputes
    them anyway); under torch.compile and torch.func; and if FSDP shards the norm by itself: its
    weight is then not available in the backward of the operators that read the result.
    """
    if torch.compiler.is_compiling() or not recomputable(result):
        return _AS_USUAL
    recomputed = vars(result).pop(_NAME, None)
    if (
        recomputed is None
        or recomputed.version != result._version
        or type(norm).__name__.startswith("FSDP")
        or active_hooks() is not None
    ):
        return _AS_USUAL
    return recomputed.saved()


_AS_USUAL = nullcontext()
