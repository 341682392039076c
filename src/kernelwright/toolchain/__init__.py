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
    from kernelwright.contract.symbolic_int import Trace

__all__ = ["can_open", "claim", "executor", "open_executor", "opens", "prepare"]


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


def opens(args: dict[str, Any]) -> bool:
    """Whether plans with open sizes can run a call: on a GPU, and without red zones."""
    if not any(getattr(v, "is_cuda", False) for v in args.values()):
        return False
    from . import redzones

    return redzones.active is None


def can_open(plan: Plan) -> bool:
    """Whether a plan's open sizes reach its kernels through arguments and grids alone."""
    from . import gpu_executor

    return gpu_executor.can_open(plan)


def open_executor(
    plan: Plan,
    operator: Operator,
    specs: dict[str, Any],
    copies: tuple[str, ...],
    device: torch.device,
    trace: Trace,
) -> Callable[..., Callable]:
    """Like `executor`, for a plan with open sizes on a GPU: returns a function that takes sizes, in
    the order of the trace, and returns the function that runs the plan for them."""
    from . import gpu_executor

    return gpu_executor.opened(plan, operator, specs, copies, device, trace)
