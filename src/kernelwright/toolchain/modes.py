"""A process either compiles Triton and Numba kernels for a GPU, or interprets them on the CPU.

Both languages decide when they are imported, so the mode is chosen before the first rung module is
imported, and cannot change within the process.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from kernelwright.support.errors import ToolchainError

VARIABLES = {"triton": "TRITON_INTERPRET", "numba": "NUMBA_ENABLE_CUDASIM"}
_compile_only = False


@cache
def has_gpu() -> bool:
    """True if PyTorch can use a CUDA device."""
    import torch

    return torch.cuda.is_available()


def compile_only() -> None:
    """Make this process compile Triton and Numba kernels even without a GPU.

    Raises:
        ToolchainError: the process already interprets one of them.
    """
    global _compile_only
    if not has_gpu():
        for language, variable in VARIABLES.items():
            if language not in sys.modules:
                os.environ.pop(variable, None)
            elif os.environ.get(variable) == "1":
                raise ToolchainError(f"this process interprets {language}; it cannot compile too")
    _compile_only = True


def compiling() -> bool:
    """True if Triton and Numba compile for a GPU in this process."""
    return _compile_only or has_gpu()
