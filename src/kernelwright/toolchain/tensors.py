"""tensors.c: reads the properties of a call's tensors in C."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from types import ModuleType
from typing import Any

import torch

from . import c_extensions, modes

#: Of the kinds of a call's arguments (as defined in tensors.c), whether it matters that a matrix is
#: stored by columns, and the arguments: (the call without its open sizes, those sizes). None if C
#: cannot describe the call.
Pattern = Callable[
    [str, bool, tuple[Any, ...]], tuple[tuple[Hashable, ...], tuple[int, ...]] | None
]


@cache
def module() -> ModuleType:
    """tensors.c, built and connected to PyTorch.

    Raises:
        ToolchainError: see `c_extensions.module`.
    """
    made = c_extensions.module("tensors")
    made.set_exchange(torch.Tensor.__dlpack_c_exchange_api__)
    return made


def in_c() -> bool:
    """Whether tensors are read in C: on a GPU, where host time matters and launches need a C
    compiler anyway."""
    return modes.has_gpu() and c_extensions.compiler() is not None


def finder(
    kinds: str, bound: Callable[..., Callable], run: Callable[..., Any]
) -> Callable[..., Any] | None:
    """`run` in C, which takes a third of the time, or None if tensors are read in Python.

    Args:
        kinds: one letter per argument, as defined in tensors.c.
        bound: returns the function that runs calls with arguments like these and this rung.
        run: runs a call, given its arguments and rung.
    """
    return module().Finder(kinds, bound, run) if in_c() else None


def pattern() -> Pattern | None:
    """The pattern of a call in C, or None if tensors are read in Python."""
    return module().pattern if in_c() else None
