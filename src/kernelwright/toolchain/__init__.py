"""Compiles and runs plans: every launch goes through this package.

On a GPU, NVRTC and Triton build cubins, and a small C launcher runs them. Without one, Triton's
interpreter, Numba's simulator and the CUDA C++ emulator run the same plans on CPU tensors.
Importing this package loads no kernel language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .modes import compiling

if TYPE_CHECKING:
    import torch

    from kernelwright.contract import Operator, Plan

__all__ = ["claim", "executor", "prepare"]


def claim() -> None:
    """Without a GPU, set triton to interpret, before torch.compile imports it in compiling mode."""
    if not compiling():
        from . import interpreter

        interpreter.claim()


def prepare(backend: str) -> None:
    """Set a kernel language to the mode of this process; call it before importing its rungs."""
    if backend == "numba":
        from . import numba_rt

        numba_rt.mend_numpy()
        if not compiling():
            numba_rt.activate_simulator()
    elif backend == "triton" and not compiling():
        from . import interpreter

        interpreter.activate()


def executor(
    plan: Plan,
    operator: Operator,
    specs: dict[str, Any],
    copies: tuple[str, ...],
    device: torch.device,
) -> Callable:
    """The function that runs `plan`; it takes the operator's arguments in the schema's order.

    Args:
        specs: the arguments' specs that the plan was made for.
        copies: the arguments that must be copied to contiguous first.

    Raises:
        ToolchainError: a kernel cannot be built or run here; CompiledDuringCapture among them.
    """
    if device.type == "cuda":
        from . import gpu_executor

        return gpu_executor.executor(plan, operator, specs, copies, device)
    from . import cpu_executor

    return cpu_executor.executor(plan, operator, specs, copies)
