"""CUDA C++ on the CPU: a rung's unmodified .cu file, compiled by g++ or clang++ and run on CPU
tensors through the same plan that a GPU launches.

Each CUDA thread is a fiber on its block's OS thread. It runs until it must wait (a barrier, a
shuffle, an exit) and hands over to the next; blocks are spread over OS threads in the order of
their numbers, those of a cluster to one. Files, in the order to read them:

    runtime.h      what a rung's code, the runtime and observers know of each other
    include/       what a .cu file finds: kw_emulator.h is there without being included, a chapter
                   a header in include/emulator/; cuda_fp16.h and others stand for NVIDIA's
    switch.h       the context switch, by hand, for x86-64 and aarch64
    worker.h       an OS thread that runs blocks
    fibers.h       stacks, the order of threads, deadlocks
    meeting.h      barriers and warp operations
    cluster.h      the barrier of a cluster, mbarriers, sends to another block's shared memory
    interrupts.h   faults, and the clock that ends endless loops
    runtime.cpp    blocks, launches, the functions that kernels call
    watch.cpp      what builds whose every access is seen call instead of libtsan
    compiler.py    the compiler and its options for each kind of build
    build.py       libraries of kernels, by content, several instantiations at a time
    libraries.py   loads and launches them
    launch.py      a plan's launch of one
    apart.py       launches in a process of their own, host.py, what may destroy it
    messages.py    a compiler's or the runtime's complaint, with the rung's line

Kinds of build: "fast" (-O2), "watched" (-O1, every access to memory is told to an observer),
"dissected" (watched, a vector is one access and each basic block is told too) and "debug"
(-O0 -g3, for gdb; with one worker and no patience nothing interrupts it).

To look on, write a C++ file that fills an `Observer` (runtime.h), build it as a shared library
(`build.observer`) and hand its address to a mode; everything bound inside the block uses it.
`before` is called with each launch and its values (tensors and Scalars) ahead of it: there an
observer can be told which memory is the call's.

    how = Schedule(seed=7, workers=1)
    with emulator.mode(kind="watched", schedule=how, observer=address, before=tell):
        run = dispatch.launcher(ladder, args, "cuda_warp")
    run(*args.values())

An observer's calls get the Thread (its index, block, warp, lane, barriers and warp operations
passed: `epoch`, `warp_epoch`) and, for an access, its return address. `messages.frames_of(address)`
turns that into functions, files and lines, innermost first; `messages.line_of` into text. A
Thread and a Block have a `data` pointer for the observer's own. Blocks of several workers call an
observer at once: ask for one worker where that does not suit. `Block.shared` to `shared_bytes` are
the static __shared__ variables of *all* kernels of the library, `dynamic` to `dynamic_bytes` the
extern ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernelwright.contract import CudaKernel, Launch

from .launch import Crashed, EmulationError, Schedule

__all__ = [
    "Crashed",
    "EmulationError",
    "Mode",
    "Schedule",
    "ensure",
    "launcher",
    "looked_on",
    "missing",
    "mode",
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


def looked_on() -> bool:
    """Whether an observer, a debugger or a caller looks, in this process, at what is bound."""
    return _active.kind != "fast" or _active.observer is not None or _active.before is not None


def missing(kind: str = "fast") -> str | None:
    """Why CUDA C++ cannot be emulated here, in this kind of build, or None."""
    from . import compiler

    return compiler.missing(kind)


def ensure(kernels: Iterable[CudaKernel]) -> None:
    """Build kernels ahead of their binding: many together cost less than one by one.

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
