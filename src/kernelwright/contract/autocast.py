"""Autocast of an operator's operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def active(t: torch.Tensor) -> torch.dtype | None:
    """The dtype in which autocast runs matrix products on a tensor's device, or None if autocast
    is off. The meta device has no autocast, and PyTorch raises an error if it is queried."""
    if not torch._C._is_any_autocast_enabled():
        return None
    kind = t.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def float32_on_cuda(t: torch.Tensor) -> torch.Tensor:
    """The tensor as autocast casts it for operators that it runs in float32 on CUDA devices only,
    such as norms and the resizing of images."""
    if t.is_cuda and t.itemsize == 2 and torch.is_autocast_enabled("cuda"):
        return t.float()
    return t


def of_a_loss(t: torch.Tensor) -> torch.dtype | None:
    """The dtype of a loss if it differs from the input's: autocast runs losses in float32. A kernel
    that accumulates in float32 needs no copy for that."""
    kind = t.device.type
    if t.itemsize != 2 or kind == "meta" or not torch.is_autocast_enabled(kind):
        return None
    return torch.float32


def cast(of: torch.Tensor, *tensors: torch.Tensor | None) -> Sequence[Any]:
    """The operands of a product as autocast casts them on `of`'s device: all except float64."""
    to = active(of)
    if to is None:
        return tensors
    return [t if t is None or t.dtype == torch.float64 else t.to(to) for t in tensors]


def widest(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in one dtype, as autocast casts them for operators such as scatter_add: on a CUDA
    device, float32 if one of them is float32."""
    first = tensors[0]
    if not first.is_cuda or not torch.is_autocast_enabled("cuda"):
        return tensors
    if {t.dtype for t in tensors} != {torch.get_autocast_dtype("cuda"), torch.float32}:
        return tensors
    return tuple(t.float() for t in tensors)
