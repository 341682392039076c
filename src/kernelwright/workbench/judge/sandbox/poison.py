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
        result = func(*args, **(kwargs or {}))
        if func.__name__.startswith(("empty.", "empty_like.", "empty_strided.", "new_empty")):
            return self._guarded("torch.empty", result, fill=False)
        given = {
            _address(t) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        if isinstance(result, tuple) and type(result) is tuple:
            return tuple(self._moved(func, t, given) for t in result)
        return self._moved(func, result, given)

    def _moved(self, func, result, given):
        """A new tensor moved to guarded memory; a view of an argument unchanged."""
        if not isinstance(result, torch.Tensor) or not result.numel() or _address(result) in given:
            return result
        return self._guarded(f"the result of {func.__name__.split('.')[0]}", result, fill=True)

    def _guarded(self, name: str, tensor: torch.Tensor, *, fill: bool) -> torch.Tensor:
        plain = (
            tensor.layout is torch.strided and not tensor.is_meta and not tensor.dtype.is_complex
        )
        if not plain or type(tensor) is not torch.Tensor or 0 in tensor.stride():
            return tensor
        spec = TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        guarded = self.guard.empty(name, spec, tensor.device, result=False)
        return guarded.copy_(tensor) if fill else guarded


def unseen(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` run outside of all modes, so that a guard's own allocations are not guarded again."""

    def call(*args: Any, **options: Any) -> Any:
        with _disable_current_modes():
            return fn(*args, **options)

    return call


def _address(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.layout is torch.strided else 0
