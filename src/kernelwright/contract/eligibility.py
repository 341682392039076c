"""What the `heuristics.py` of ladders share: why kernels do not take a call, and names for its key
in a tuned table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .inputs import FLOATS
from .operator import Gpu
from .signature import TensorSpec


def unsupported_dtype(dtype: torch.dtype, of: str = "") -> str | None:
    """Why kernels for float32, float16 and bfloat16 do not take a tensor, of this name if given."""
    if dtype in FLOATS:
        return None
    return f"{of}: {dtype} is not float32, float16 or bfloat16".removeprefix(": ")


def other_dtype(args: Mapping[str, Any], of: str) -> str | None:
    """Why kernels of the dtype of the tensor named `of` do not take all tensors of a call."""
    kind = args[of].dtype
    for name, t in _tensors(args):
        if why := unsupported_dtype(t.dtype, name):
            return why
        if t.dtype != kind:
            return f"{name}: {t.dtype} is not {of}'s {kind}"
    return None


def off_boundary(args: Mapping[str, Any]) -> str | None:
    """Why kernels that load 16 bytes at a time do not take all tensors of a call."""
    for name, t in _tensors(args):
        if t.align < 16:
            return f"{name}: its memory starts off a 16-byte boundary"
    return None


def _tensors(args: Mapping[str, Any]) -> Iterator[tuple[str, TensorSpec]]:
    """Arguments by name; what is no tensor, or not given, is passed over."""
    return ((name, t) for name, t in args.items() if isinstance(t, TensorSpec))


def no_clusters(gpu: Gpu) -> str | None:
    """Why a kernel of thread-block clusters does not run."""
    if gpu.capability < (9, 0):
        return f"compute capability {gpu.capability[0]}.{gpu.capability[1]} has no clusters"
    return None


def kind(dtype: torch.dtype) -> str:
    """What a tuned table calls a dtype: "float32"."""
    return str(dtype).removeprefix("torch.")


def log2(n: int) -> int:
    """Rounded down; 0 of an empty tensor."""
    return max(n, 1).bit_length() - 1
