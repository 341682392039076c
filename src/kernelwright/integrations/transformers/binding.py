"""Which forward a module has now: its class's own, one of ours, or another's."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn


def takes(module: nn.Module, forward: Any) -> bool:
    """Is the module's forward this one? Adapters put around a module after `patch` take no more
    arguments than the module itself did."""
    bound = module.forward
    # not getattr(bound, "__func__", None): traced by torch.compile of torch 2.11, that is None
    return isinstance(bound, MethodType) and bound.__func__ is forward


def mark(forward: Callable[..., Any]) -> None:
    """Functions that `patch` binds are marked, so that copies of a model are undone as well. A
    bound method is pickled as an attribute of the function's name: the class's own forward."""
    forward.__kernelwright__, forward.__name__ = True, "forward"


def is_ours(forward: Any) -> bool:
    return isinstance(forward, MethodType) and hasattr(forward.__func__, "__kernelwright__")
