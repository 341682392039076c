"""Checks of arguments that public functions share; each error begins with the argument's name."""

from __future__ import annotations

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
