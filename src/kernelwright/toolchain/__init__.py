"""From source to something that runs: the only way from a plan to a launch.

On a GPU: NVRTC and Triton build cubins, a small C launcher runs them. Without one: Triton's
interpreter, Numba's simulator and an emulator of CUDA C++ run the same plans on CPU tensors.
Importing this package loads no kernel language.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from kernelwright.support.errors import CompiledDuringCapture, CompileError, NoSpace, ToolchainError

from . import inductor
from .modes import compile_only, compiling
from .versions import warn_of_untested

if TYPE_CHECKING:
    import torch

    from kernelwright.contract import Operator, Plan

__all__ = [
    "CompileError",
    "CompiledDuringCapture",
    "NoSpace",
    "ToolchainError",
    "claim",
    "compile_only",
    "compiling",
    "describer",
    "executor",
    "finder",
    "inductor",
    "missing",
    "prepare",
    "warn_of_untested",
]


def missing(backend: str, device: torch.device) -> str | None:
    """Why `backend` cannot run on tensors of `device` here, in a line, or None."""
    from . import availability

    return availability.missing(backend, device.type)


def claim() -> None:
    """Without a GPU, decide that triton interprets, before torch.compile imports it otherwise."""
    if not compiling():
        from . import interpreter

        interpreter.claim()


def prepare(backend: str) -> None:
    """Put a kernel language into the mode of this process; call before importing its rungs."""
    if backend == "numba":
        from . import numba_rt

        numba_rt.mend_numpy()
        if not compiling():
            numba_rt.activate_simulator()
    elif backend == "triton" and not compiling():
        from . import interpreter

        interpreter.activate()


def describer() -> Callable[[list[torch.Tensor]], Hashable]:
    """A function of a list of tensors whose values are equal where every rung sees the same."""
    from . import pointer_arrays

    return pointer_arrays.describer()


def finder(
    kinds: str, bound: Callable[..., Callable], run: Callable[..., Any]
) -> Callable[..., Any] | None:
    """`run(*arguments, rung)` in C, which finds again what `bound` found for a call like it; None
    where nothing is launched on a GPU. `kinds`: see `tensors.finder`."""
    from . import tensors

    return tensors.finder(kinds, bound, run)


def executor(
    plan: Plan,
    operator: Operator,
    specs: dict[str, Any],
    copies: tuple[str, ...],
    device: torch.device,
) -> Callable:
    """The function that runs `plan`; it takes the operator's arguments in the schema's order.

    Args:
        specs: the arguments as the plan was made for.
        copies: the arguments that must be copied to contiguous first.

    Raises:
        ToolchainError: a kernel cannot be built or run here; CompiledDuringCapture among them.
    """
    if device.type == "cuda":
        from . import gpu_executor

        return gpu_executor.executor(plan, operator, specs, copies, device)
    from . import cpu_executor

    return cpu_executor.executor(plan, operator, specs, copies)
