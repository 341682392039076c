"""tensors.c: what a call needs to know of its tensors, read in C."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch

from . import c_extensions, modes


@cache
def module() -> ModuleType:
    """tensors.c, built and connected to PyTorch.

    Raises:
        ToolchainError: as `native.module` says.
    """
    made = c_extensions.module("tensors")
    made.set_exchange(torch.Tensor.__dlpack_c_exchange_api__)
    return made


def in_c() -> bool:
    """True where tensors are looked at in C: on a GPU, where launches are built with a C compiler
    too, and the host's time counts."""
    return modes.has_gpu() and c_extensions.compiler() is not None


def finder(
    kinds: str, bound: Callable[..., Callable], run: Callable[..., Any]
) -> Callable[..., Any] | None:
    """`run` in C, a third of its time, or None where tensors are looked at in Python.

    Args:
        kinds: a letter an argument, as tensors.c has them.
        bound: of a call's arguments and rung, the function that runs calls like it.
        run: of the same, runs the call.
    """
    return module().Finder(kinds, bound, run) if in_c() else None
