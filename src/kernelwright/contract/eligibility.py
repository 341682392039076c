"""Helpers that the `heuristics.py` of all ladders share: reasons why kernels do not accept a call,
and the names in a call's key in a tuned table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .inputs import FLOATS
from .operator import Gpu
from .signature import TensorSpec


def unsupported_dtype(dtype: torch.dtype, of: str = "") -> str | None:
    """Why kernels for float32, float16 and bfloat16 do not accept tensor `of`, or None."""
    if dtype in FLOATS:
        return None
    return f"{of}: {dtype} is not float32, float16 or bfloat16".removeprefix(": ")


def other_dtype(args: Mapping[str, Any], of: str) -> str | None:
    """Why kernels that need all tensors in the dtype of `of` do not accept a call, or None."""
    kind = args[of].dtype
    for name, t in _tensors(args):
        if why := unsupported_dtype(t.dtype, name):
            return why
        if t.dtype != kind:
            return f"{name}: {t.dtype} is not {of}'s {kind}"
    return None


def off_boundary(args: Mapping[str, Any]) -> str | None:
    """Why kernels that load 16 bytes at a time do not accept a call, or None."""
    for name, t in _tensors(args):
        if t.align < 16:
            return f"{name}: its memory starts off a 16-byte boundary"
    return None


def _tensors(args: Mapping[str, Any]) -> Iterator[tuple[str, TensorSpec]]:
    """The tensor arguments that are given, by name."""
    return ((name, t) for name, t in args.items() if isinstance(t, TensorSpec))


def no_clusters(gpu: Gpu) -> str | None:
    """Why a kernel that uses thread-block clusters cannot run, or None."""
    if gpu.capability < (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no clusters"
    return None


def kind(dtype: torch.dtype) -> str:
    """The name of a dtype in a tuned table: "float32"."""
    return str(dtype).removeprefix("torch.")


def log2(n: int) -> int:
    """The logarithm to base 2, rounded down; 0 for an empty tensor."""
    return max(n, 1).bit_length() - 1
