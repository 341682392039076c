"""Recomputes a norm's result in the backward instead of saving it.

The products that read a norm's result save it for the gradients of their weights. Recomputing it
takes one pass over the norm's input, which is saved anyway. In a layer of Llama, the results of two
norms are a seventh of what is saved per token.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernelwright.dispatch import override

from . import norms
from .binding import takes

_autograd = torch._C._autograd


def remade(norm: torch.nn.Module, result: torch.Tensor, of: torch.Tensor) -> AbstractContextManager:
    """Inside the block, operators that save `result` for their backward save how to recompute it.

    Results are saved as usual if their dtype differs from that of `of`, if other hooks of saved
    tensors are active (checkpointing recomputes them anyway), under torch.compile and torch.func,
    and if FSDP shards the norm by itself: its weight is then not available in the backward of the
    operators that read the result.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    formula = next((f for f in norms.REMADE if takes(norm, f)), None)
    if (
        formula is None
        or not result.requires_grad
        or result.dtype != of.dtype
        or type(result) is not torch.Tensor
        or type(norm).__name__.startswith("FSDP")
        or not _autograd._saved_tensors_hooks_is_enabled()
        or _autograd._top_saved_tensors_default_hooks(False) is not None
    ):
        return nullcontext()
    made = _Made(result, of.detach(), norm, norms.REMADE[formula])
    return torch.autograd.graph.saved_tensors_hooks(made.pack, _unpack)


class _Made:
    """How to compute a norm's result, and the result itself between its first and last use."""

    def __init__(self, result, of, norm, formula):
        self.at, self.shape, self.dtype = result.data_ptr(), result.shape, result.dtype
        self.of, self.norm, self.formula = of, norm, formula
        self.rung = override("rms_norm")
        self.uses = self.left = 0
        self.result: torch.Tensor | None = None

    def pack(self, t: torch.Tensor) -> Any:
        same = t.dtype == self.dtype and t.numel() == self.shape.numel() and t.is_contiguous()
        if not same or t.data_ptr() != self.at:
            return t
        self.uses += 1
        self.left = self.uses
        return self, t.shape

    def used(self) -> torch.Tensor:
        """The result. It is freed with its last use; the backward of a retained graph starts
        again."""
        if self.result is None:
            with torch.no_grad():
                self.result = norms.again(self.norm, self.of, self.formula, self.rung)
        found = self.result
        self.left -= 1
        if self.left == 0:
            self.left, self.result = self.uses, None
        return found


def _unpack(kept: Any) -> torch.Tensor:
    if isinstance(kept, torch.Tensor):
        return kept
    made, shape = kept
    return made.used().view(shape)
