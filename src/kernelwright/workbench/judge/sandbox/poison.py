"""In the kernel's process: PyTorch's allocations get red zones during a guarded call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kernelwright.contract import TensorSpec
from kernelwright.toolchain import redzones


class Poisoned(TorchDispatchMode):
    """Returns poisoned memory between red zones for `torch.empty` and similar calls, and moves the
    results of PyTorch's other operators to memory between red zones."""

    def __init__(self, guard: redzones.Guard):
        super().__init__()
        self.guard = guard

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True, because torch.compile would permanently skip functions that it first sees under any
        other mode, and the uncompiled function would be judged."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func.__name__.startswith(("empty.", "empty_like.", "empty_strided.", "new_empty")):
            return self._guarded("torch.empty", made, fill=False)
        given = {
            _address(t) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        if isinstance(made, tuple) and type(made) is tuple:
            return tuple(self._moved(func, t, given) for t in made)
        return self._moved(func, made, given)

    def _moved(self, func, made, given):
        """A new tensor moved to guarded memory; a view of an argument unchanged."""
        if not isinstance(made, torch.Tensor) or not made.numel() or _address(made) in given:
            return made
        return self._guarded(f"the result of {func.__name__.split('.')[0]}", made, fill=True)

    def _guarded(self, name: str, made: torch.Tensor, *, fill: bool) -> torch.Tensor:
        plain = made.layout is torch.strided and not made.is_meta and not made.dtype.is_complex
        if not plain or type(made) is not torch.Tensor or 0 in made.stride():
            return made
        spec = TensorSpec(tuple(made.shape), tuple(made.stride()), made.dtype)
        guarded = self.guard.empty(name, spec, made.device, result=False)
        return guarded.copy_(made) if fill else guarded


def unseen(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` run outside of all modes, so that a guard's own allocations are not guarded again."""

    def call(*args: Any, **options: Any) -> Any:
        with _disable_current_modes():
            return fn(*args, **options)

    return call


def _address(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.layout is torch.strided else 0
