"""Launches emulated kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.support.errors import ToolchainError

from . import build, kernel_library, messages

if TYPE_CHECKING:
    from kernelwright.contract import CudaKernel, Launch

PATIENCE = 60.0  # seconds
MOST_BLOCKS = 16  # of a cluster, on an H200


class EmulationError(ToolchainError):
    """A kernel failed at run time: a fault, a deadlock, a failed assertion."""


class Crashed(EmulationError):
    """The process that ran a kernel has ended."""


@dataclass(frozen=True)
class Schedule:
    """The execution order of threads and blocks, which a GPU leaves undefined.

    Attributes:
        seed: of the order of a block's threads; 0 for increasing thread index.
        block_seed: of the order of blocks; 0 for increasing block index. On a GPU, blocks start in
            about that order, and blocks that wait for others rely on it.
        workers: OS threads that run blocks in parallel; 0 for one per core that PyTorch uses.
        patience: seconds without progress after which a launch is aborted; 0 for no limit.
    """

    seed: int = 0
    block_seed: int = 0
    workers: int = 0
    patience: float = PATIENCE


@dataclass(frozen=True)
class Kernel:
    """A built kernel: its library, its number in it, and its parameters' kinds."""

    name: str
    path: str
    number: int
    kinds: tuple[str, ...]

    @property
    def static_shared(self) -> int:
        """Bytes of the static shared memory of its library."""
        return kernel_library.load(self.path, str(build.runtime()))[1].dynamic


def load(kernel: CudaKernel, kind: str = "fast") -> Kernel:
    """A kernel, built now if necessary.

    Raises:
        CompileError, ToolchainError: as `build.library_of`.
    """
    path, number = build.library_of(kernel, kind)
    takes = kernel_library.parameter_kinds(str(path), str(build.runtime()), number)
    return Kernel(kernel.name, str(path), number, takes)


def bound(step: Launch, kind: str = "fast") -> Kernel:
    """The kernel of one launch, after a comparison of its parameters with those the plan passes.

    Raises:
        ToolchainError: they differ, or a block has more threads or shared memory, a cluster more
            blocks than any GPU's; a grid that clusters do not divide.
    """
    kernel = load(step.kernel, kind)
    given = tuple("struct" if kind == "tensor_map" else kind for kind in step.kinds)
    if kernel.kinds != given:
        takes, passes = ", ".join(kernel.kinds), ", ".join(step.kinds)
        raise ToolchainError(f"{kernel.name} takes ({takes}), but its plan passes ({passes})")
    x, y, z = step.block
    if x * y * z > 1024:
        raise ToolchainError(f"{kernel.name}: a block of {x * y * z} threads; 1024 are the most")
    if step.shared > build.MOST_SHARED:
        raise ToolchainError(
            f"{kernel.name}: {step.shared} bytes of dynamic shared memory; "
            f"{build.MOST_SHARED} are the most"
        )
    cluster = step.kernel.cluster
    if cluster > MOST_BLOCKS:
        raise ToolchainError(
            f"{kernel.name}: a cluster of {cluster} blocks; {MOST_BLOCKS} are the most"
        )
    if step.grid[0] % cluster:
        raise ToolchainError(
            f"{kernel.name}: a grid of {step.grid[0]} blocks along x is not divisible into "
            f"clusters of {cluster}"
        )
    return kernel


def run(
    kernel: Kernel,
    step: Launch,
    values: Sequence[object],
    schedule: Schedule | None = None,
    observer: int | None = None,
    launch: Callable[..., str | None] = kernel_library.launch,
) -> None:
    """Run one launch.

    Args:
        values: tensors, and Scalars with numbers, in the kernel's order.
        observer: address of a runtime.h Observer.
        launch: `kernel_library.launch`, or a function that does the same in another process.

    Raises:
        EmulationError: with the thread, the block and the rung's line. Crashed: `launch` does.
    """
    import torch

    schedule = schedule or Schedule()
    arguments = [_passed(v) for v in values]
    try:
        wrong = launch(
            path=kernel.path,
            runtimes=str(build.runtime()),
            number=kernel.number,
            arguments=arguments,
            grid=step.grid,
            block=step.block,
            shared=step.shared,
            seed=schedule.seed,
            block_seed=schedule.block_seed,
            patience=schedule.patience,
            workers=schedule.workers or torch.get_num_threads(),
            cluster=step.kernel.cluster,
            observer=observer,
        )
    except Crashed as e:
        raise Crashed(f"{kernel.name}: {e}") from None
    if wrong:
        raise EmulationError(f"{kernel.name}: {messages.with_lines(wrong)}")


def _passed(value: Any) -> kernel_library.Argument:
    """A tensor or a Scalar in a form that JSON can represent."""
    from kernelwright.contract import Scalar

    if not isinstance(value, Scalar):
        return "pointer", value.data_ptr()
    return value.ctype, value.value.hex() if isinstance(value.value, bytes) else value.value
