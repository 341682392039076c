"""CUDA C++ on the CPU: a rung's unmodified .cu file, compiled by g++ or clang++ and run on CPU
tensors through the same plan that a GPU launches.

Each CUDA thread is a fiber on its block's OS thread. It runs until it must wait (a barrier, a
shuffle, an exit) and then switches to the next. Blocks are distributed over OS threads in
increasing order, all blocks of a cluster to the same one. Files, in reading order:

    runtime.h      the interfaces between a rung's code, the runtime and observers
    include/       headers for .cu files: kw_emulator.h is included implicitly, with one header per
                   topic in include/emulator/; cuda_fp16.h and others replace NVIDIA's
    context_switch.h  the context switch, by hand, for x86-64 and aarch64
    worker.h       an OS thread that runs blocks
    fibers.h       stacks, the order of threads, deadlocks
    sync_point.h   barriers and warp operations
    bulk.h         copies by the tensor memory accelerator
    wgmma.h        wgmma; tensor_cores.cpp has its arithmetic
    ldmatrix.h     ldmatrix and stmatrix
    hopper/        asm statements of Hopper's instructions as calls of these
    cluster.h      the barrier of a cluster, mbarriers, sends to another block's shared memory
    interrupts.h   faults, and the clock that ends endless loops
    runtime.cpp    blocks, launches, the functions that kernels call
    tsan_hooks.cpp  the functions that instrumented builds call in place of libtsan's
    compiler.py    the compiler and its options for each kind of build
    build.py       libraries of kernels, by content, several instantiations at a time
    kernel_library.py  loads and launches them
    launch.py      runs a plan's launch
    subprocess_runner.py  runs launches that may corrupt memory in a separate process,
                   subprocess_main.py
    messages.py    errors of the compiler and the runtime, with the rung's line
    program/       whole programs
    libraries/     NVIDIA's libraries for whole programs

Kinds of build: "fast" (-O2), "watched" (-O1, every memory access is reported to an observer),
"dissected" (like watched, but a vector is one access, and basic blocks are reported too) and
"debug" (-O0 -g3, for gdb; with one worker and no time limit, so that nothing interrupts it).

To observe launches, write a C++ file that fills an `Observer` (runtime.h), build it as a shared
library (`build.observer`) and pass its address to a mode; everything bound inside the block uses
it. `before` is called before each launch with the launch and its values (tensors and Scalars), for
example to tell the observer which memory belongs to the call.

    how = Schedule(seed=7, workers=1)
    with emulator.mode(kind="watched", schedule=how, observer=address, before=tell):
        run = dispatch.launcher(ladder, args, "cuda_warp")
    run(*args.values())

An observer's functions receive the Thread (its index, block, warp, lane, and the number of barriers
and warp operations it has passed: `epoch`, `warp_epoch`) and, for an access, its return address.
`messages.frames_of(address)` converts it to functions, files and lines, innermost first;
`messages.line_of` to text. Thread and Block have a `data` pointer for the observer's own use. With
several workers, an observer is called concurrently; use one worker if it is not thread-safe.
`Block.shared` to `shared_bytes` are the static __shared__ variables of *all* kernels of the
library, `dynamic` to `dynamic_bytes` the extern ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .launch import Crashed, EmulationError, Schedule

if TYPE_CHECKING:  # whole programs run without PyTorch
    from kernelwright.contract import CudaKernel, Launch

__all__ = [
    "Crashed",
    "EmulationError",
    "Mode",
    "Schedule",
    "ensure",
    "launcher",
    "missing",
    "mode",
    "needs_this_process",
    "observed",
]


@dataclass(frozen=True)
class Mode:
    """How kernels bound now are built and run."""

    kind: str = "fast"
    schedule: Schedule = field(default_factory=Schedule)
    observer: int | None = None
    before: Callable[[Launch, list], None] | None = None


_active = Mode()


@contextmanager
def mode(
    kind: str = "fast",
    schedule: Schedule | None = None,
    observer: int | None = None,
    before: Callable[[Launch, list], None] | None = None,
):
    """Launches bound inside the block are built and run in this way."""
    global _active
    outer, _active = _active, Mode(kind, schedule or Schedule(), observer, before)
    try:
        yield
    finally:
        _active = outer


def needs_this_process() -> bool:
    """Whether launches bound now are observed in this process, by an observer or a debugger."""
    return _active.kind != "fast" or _active.observer is not None or _active.before is not None


def observed() -> bool:
    """Whether launches that are bound now report to an observer."""
    return _active.observer is not None or _active.kind in ("watched", "dissected")


def missing(kind: str = "fast") -> str | None:
    """Why CUDA C++ cannot be emulated here with this kind of build, or None."""
    from . import compiler

    return compiler.missing(kind)


def ensure(kernels: Iterable[CudaKernel]) -> None:
    """Build kernels ahead of binding: building many together is cheaper than one by one.

    Raises:
        CompileError, ToolchainError: as `build.ensure`.
    """
    from . import build

    build.ensure(kernels, _active.kind)


def launcher(step: Launch) -> Callable[..., None]:
    """`run(kernel, step, values)` for one launch of a plan; `launch=` as `launch.run` takes it.

    Raises:
        CompileError, ToolchainError: as `launch.bound`.
    """
    from . import launch

    how = _active
    kernel = launch.bound(step, how.kind)

    def run(_, step: Launch, values: list, **where) -> None:
        if how.before:
            how.before(step, values)
        launch.run(kernel, step, values, how.schedule, how.observer, **where)

    return run
