"""Launches emulated kernels."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Scalar

from ..build import kinds
from ..errors import ToolchainError
from . import build, messages

PATIENCE = 60.0  # seconds
MOST_BLOCKS = 16  # of a cluster, on an H200
SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": c_double,
           "pointer": c_void_p}  # fmt: skip


class EmulationError(ToolchainError):
    """A kernel went wrong while it ran: a fault, a deadlock, a failed assertion."""


@dataclass(frozen=True)
class Schedule:
    """In which order things happen that a GPU may do in any order.

    Attributes:
        seed: of the order of a block's threads; 0 goes by their numbers.
        block_seed: of the order of blocks; 0 goes by their numbers. On a GPU blocks start in about
            that order, and a block that waits for others counts on it.
        workers: OS threads that run blocks side by side; 0 for one a core that PyTorch uses.
        patience: seconds without progress after which a launch is given up; 0 for ever.
    """

    seed: int = 0
    block_seed: int = 0
    workers: int = 0
    patience: float = PATIENCE


class _Index(Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class _Library(Structure):
    _fields_ = [("module", c_uint64), ("bytes", c_uint64), ("dynamic", c_uint64)]


class _Launch(Structure):
    """runtime.h's Launch."""

    _fields_ = [
        ("entry", c_void_p),
        ("arguments", c_void_p),
        ("library", _Library),
        ("grid", _Index),
        ("block", _Index),
        ("shared", c_uint64),
        ("seed", c_uint64),
        ("block_seed", c_uint64),
        ("patience", c_double),
        ("workers", c_uint),
        ("cluster", c_uint),
        ("observer", c_void_p),
    ]


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel: its entry, its parameters' kinds, its library's shared memory."""

    name: str
    entry: int
    kinds: tuple[str, ...]
    library: _Library


@once
def runtime() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build.runtime()))
    lib.kw_launch.argtypes, lib.kw_launch.restype = (POINTER(_Launch),), c_char_p
    lib.kw_library.argtypes = (c_void_p, c_void_p, POINTER(_Library))
    lib.kw_library.restype = ctypes.c_bool
    return lib


@once
def _load(path: Path) -> tuple[ctypes.CDLL, _Library]:
    lib = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    lib.kw_dynamic_shared.restype = c_void_p
    shared = _Library()
    inside = ctypes.cast(lib.kw_run_0, c_void_p)
    runtime().kw_library(inside, lib.kw_dynamic_shared(), byref(shared))
    return lib, shared


def load(kernel: CudaKernel, kind: str = "fast") -> Kernel:
    """A kernel, built where it is not yet.

    Raises:
        CompileError, ToolchainError: as `build.find`.
    """
    path, number = build.find(kernel, kind)
    lib, shared = _load(path)
    listed = getattr(lib, f"kw_kinds_{number}")
    listed.restype = POINTER(c_char_p)
    found, names = listed(), []
    while (name := found[len(names)]) is not None:
        names.append(name.decode())
    entry = ctypes.cast(getattr(lib, f"kw_run_{number}"), c_void_p).value
    assert entry is not None
    return Kernel(kernel.name, entry, tuple(names), shared)


def bound(step: Launch, kind: str = "fast") -> Kernel:
    """The kernel of one launch, its parameters compared with what the plan passes.

    Raises:
        ToolchainError: they differ, or a block has more threads or shared memory, a cluster more
            blocks than any GPU's; a grid that clusters do not divide.
    """
    kernel = load(step.kernel, kind)
    if kernel.kinds != kinds(step):
        takes, passes = ", ".join(kernel.kinds), ", ".join(kinds(step))
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
) -> None:
    """Run one launch.

    Args:
        values: tensors, and Scalars with numbers, in the kernel's order.
        observer: address of a runtime.h Observer.

    Raises:
        EmulationError: with the thread, the block and the rung's line.
    """
    import torch

    schedule = schedule or Schedule()
    held = [
        SCALARS[v.ctype](v.value) if isinstance(v, Scalar) else c_void_p(v.data_ptr())
        for v in values
    ]
    arguments = (c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
    launch = _Launch(
        kernel.entry,
        ctypes.addressof(arguments),
        kernel.library,
        _Index(*step.grid),
        _Index(*step.block),
        step.shared,
        schedule.seed,
        schedule.block_seed,
        schedule.patience,
        schedule.workers or torch.get_num_threads(),
        step.kernel.cluster,
        observer,
    )
    wrong = runtime().kw_launch(byref(launch))
    if wrong:
        text = messages.with_lines(wrong.decode(errors="replace"))
        raise EmulationError(f"{kernel.name}: {text}")
