"""Checks of arguments that public functions share; each error begins with the argument's name."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch


def tensor(name: str, value: Any) -> None:
    """Raise TypeError if a value is not a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: must be a tensor, is a {type(value).__name__}")


def floating(name: str, value: Any) -> None:
    """Raise TypeError if a value is not a floating-point tensor."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return  # runs on every call of an operator: as few Python calls as possible
    tensor(name, value)
    raise TypeError(f"{name}: must be floating point, is {value.dtype}")


def dimension(name: str, value: Any, ndim: int) -> None:
    """Raise TypeError if a dimension is not an integer, IndexError if a tensor of `ndim` dimensions
    does not have it; a 0-d tensor takes 0 and -1."""
    if not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{name}: must be an integer, is a {type(value).__name__}")
    span = max(ndim, 1)
    if not -span <= value < span:
        raise IndexError(f"{name}: {value} is out of range for a tensor of {ndim} dimensions")


def real(name: str, value: Any) -> None:
    """Raise TypeError if a value is not a real number; a tensor of one element counts as one."""
    if isinstance(value, (int, float)):
        return
    symbols = (Real, torch.SymInt, torch.SymFloat)
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex():
        return
    if not isinstance(value, symbols):
        raise TypeError(f"{name}: must be a real number, is a {type(value).__name__}")


def in_range(name: str, index: torch.Tensor, size: int) -> None:
    """Raise IndexError if an entry of an index on a CPU is not from 0 to size - 1. On a GPU the
    kernels assert it, and traced or transformed tensors have no values to look at."""
    if index.is_cuda or torch.compiler.is_compiling() or type(index) is not torch.Tensor:
        return
    if index.is_meta or not index.numel() or torch._C._are_functorch_transforms_active():
        return
    if torch._C._len_torch_dispatch_stack():
        return
    wrong = index[(index < 0) | (index >= size)]
    if wrong.numel():
        raise IndexError(f"{name}: {wrong[0].item()} is out of range for a size of {size}")
