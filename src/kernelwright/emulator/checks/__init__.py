"""Checks of emulated launches for data races, out-of-bounds accesses, uninitialized reads and
divergent barriers: the counterpart of compute-sanitizer's tools on a CPU.

    watch = Watch(("races", "bounds"), seed=7)
    with watch.mode():
        run = toolchain.executor(plan, operator, specs, copies, device)
    _, _, findings = watch.call(run, args, fresh={"y"})

Files: order.h tracks the happens-before order, mbarrier_order.h that between blocks of a cluster,
volatile_order.h that of volatile writes; deferred_checks.h holds what is known only after an
access, regions.h the memory that a launch may access, shadow.h the shadow memory of each 4 bytes,
findings.h the findings; sync_checks.h checks barriers and warp operations, async_checks.h
asynchronous instructions, checks.cpp each access; report.py writes findings with the rung's lines.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from ctypes import POINTER, byref, c_size_t, c_void_p
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import build, hopper, messages
from ..launch import EmulationError, Schedule, load
from .report import Call, Finding, Memory, RawFinding, RawRegion, error_finding, format_findings

if TYPE_CHECKING:  # whole programs are checked without PyTorch
    import torch

    from kernelwright.contract import CudaKernel, Launch

__all__ = ["CHECKS", "Finding", "Watch", "checks_of"]

HERE = Path(__file__).resolve().parent
#: The checks, and the bit of each.
CHECKS = {"races": 1, "bounds": 2, "init": 4, "divergence": 8}
PATIENCE = 10.0  # seconds without progress: an out-of-bounds access may make a loop endless


def checks_of(names: Iterable[str]) -> tuple[str, ...]:
    """The checks selected by an option's values: "races", "races,init", "all".

    Raises:
        ValueError: an unknown check; the message lists the known ones.
    """
    wanted = [w for name in names for w in name.split(",")]
    for w in wanted:
        if w not in CHECKS and w != "all":
            raise ValueError(f"--check {w}: choose from {', '.join(CHECKS)} and all")
    return tuple(c for c in CHECKS if c in wanted or "all" in wanted)


class Watch:
    """One schedule of the launches bound in its mode."""

    def __init__(self, checks: Iterable[str], seed: int, unwritten: int = 0xFF):
        """
        Args:
            checks: keys of CHECKS.
            seed: of the order in which a block's threads run. Blocks run one at a time in
                increasing order, because a block may wait for earlier ones.
            unwritten: the value of each byte of uninitialized shared memory.
        """
        self.bits = sum(CHECKS[c] for c in set(checks))
        self.unwritten = unwritten
        self.schedule = Schedule(seed=seed, workers=1, patience=PATIENCE)

    def mode(self):
        """Launches bound inside the block are checked."""
        from .. import mode

        observer = _library().kw_checks_observer()
        return mode("watched", self.schedule, observer, self._before)

    def call(
        self, run: Callable[..., Any], args: dict[str, Any], fresh: Iterable[str]
    ) -> tuple[bool, Any, list[Finding]]:
        """Call `run`. Returns whether it finished, its results, and the findings.

        Args:
            args: by name, in order.
            fresh: tensors of the call that are uninitialized when it starts.
        """
        lib = _library()
        lib.kw_checks_begin(self.bits, self.unwritten)
        self._args, self._fresh = args, frozenset(fresh)
        self._held: list[torch.Tensor | None] = []
        self._calls: list[Call] = []
        result, stopped = None, None
        try:
            result = run(*args.values())
        except EmulationError as e:
            stopped = str(e)
        findings = self._raw_findings()
        if stopped:
            findings += error_finding(stopped, findings)
        return stopped is None, result, findings

    def sync_points(self) -> set[frozenset[tuple[str, int]]]:
        """The (file, line)s of each barrier and fence that the last call reached: its own, and
        those that it was inlined into."""
        count = c_size_t()
        raw = _library().kw_checks_sync_points(byref(count))
        frames = (messages.frames_of(raw[i]) for i in range(count.value))
        return {frozenset((path, line) for _, path, line in inlined) for inlined in frames}

    def _raw_findings(self) -> list[Finding]:
        count = c_size_t()
        raw = _library().kw_checks_findings(byref(count))
        return format_findings([raw[i] for i in range(count.value)], self._calls)

    def _before(self, step: Launch, values: Sequence[Any]) -> None:
        """Tell the observer which memory a launch may access."""
        from kernelwright.contract import CudaKernel, Pointers, Scalar, TensorMap

        memory: list[tuple[int, int, str, int, torch.Tensor | None]] = []

        def add(name: str, t: torch.Tensor) -> None:
            memory.append((*_span(t), name, t.element_size(), t))

        for argument, value in zip(step.args, values, strict=True):
            if isinstance(argument, Pointers):
                for name in argument.lists:
                    for i, t in enumerate(self._args[name]):
                        add(f"{name}[{i}]", t)
                add("the list of addresses", value)
            elif isinstance(argument, TensorMap):
                memory.append(
                    (
                        *hopper.address_range(argument, value),
                        argument.tensor,
                        argument.dtype.itemsize,
                        None,
                    )
                )
            elif not isinstance(value, Scalar):
                add(str(argument), value)
        regions: list[RawRegion] = []
        names: dict[int, Memory] = {}
        for start, end, name, itemsize, t in sorted(memory, key=lambda m: m[:2]):
            if start == end:
                continue
            if regions and start < regions[-1].end:  # the same memory under two names
                last = regions[-1]
                last.end, last.part = max(last.end, end), None
                last.written |= name not in self._fresh
                continue
            part = None if t is None else _elements(t)
            self._held.append(part)
            number = len(names)
            names[number] = Memory(name, end - start, itemsize)
            there = None if part is None else part.data_ptr()
            regions.append(RawRegion(start, end, number, name not in self._fresh, there, None))
        assert isinstance(step.kernel, CudaKernel)
        variables = _variables(step.kernel)
        static = _static(step.kernel)
        its = (step.shared, step.block, step.grid, step.kernel.cluster)
        self._calls.append(Call(step.kernel.name, names, variables, static, *its))
        shared = [
            RawRegion(at, at + size, i, False, None, None)
            for i, (at, size) in enumerate(sorted(variables))
        ]
        _library().kw_checks_launch(
            (RawRegion * len(regions))(*regions), len(regions),
            (RawRegion * len(shared))(*shared), len(shared),
        )  # fmt: skip


def _span(t: torch.Tensor) -> tuple[int, int]:
    """The address of a tensor's first byte, and that after its last."""
    if not t.numel():
        return t.data_ptr(), t.data_ptr()
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + extent * t.element_size()


def _elements(t: torch.Tensor) -> torch.Tensor | None:
    """One byte per byte of the tensor's memory, 0 between its elements; None if there are no
    gaps."""
    import torch

    start, end = _span(t)
    sizes = [n if s else 1 for n, s in zip(t.shape, t.stride(), strict=True)]
    if torch.Size(sizes).numel() * t.element_size() == end - start:
        return None
    part = torch.zeros((end - start) // t.element_size(), dtype=torch.uint8)
    part.as_strided(sizes, t.stride()).fill_(1)
    return part.repeat_interleave(t.element_size())


@once
def _static(kernel: CudaKernel) -> int:
    return load(kernel, "watched").static_shared


@once
def _variables(kernel: CudaKernel) -> dict[tuple[int, int], str]:
    """{(offset, bytes): name} of the static shared variables that a kernel may access: those of its
    library that, judging by their names, do not belong to another kernel."""
    path, _ = build.library_of(kernel, "watched")
    variables, mine = thread_locals(path), kernel.name.replace(" ", "")
    base = mine.split("<")[0]
    kernels = re.findall(
        r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(",
        kernel.source.read_text(),
    )
    known = any(owner.startswith(f"{mine}(") for owner, _ in variables.values())

    def may_touch(owner: str) -> bool:
        its = re.split(r"[<(]", owner)[0]
        if its == base:
            return not known or owner.startswith(f"{mine}(")
        return its not in kernels

    return {where: name for where, (owner, name) in variables.items() if may_touch(owner)}


@once
def thread_locals(path: Path) -> dict[tuple[int, int], tuple[str, str]]:
    """{(offset, bytes): (function, name)} of a library's static variables in shared memory."""
    process = subprocess.run(
        ["readelf", "-WsC", str(path)], capture_output=True, text=True, check=True
    )
    symbols: dict[tuple[int, int], tuple[str, str]] = {}
    for line in process.stdout.splitlines():
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[3] == "TLS" and int(fields[2], 0):
            owner, _, name = fields[7].rpartition("::")
            symbols[int(fields[1], 16), int(fields[2], 0)] = owner.replace(" ", ""), name
    return symbols


@once
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build.observer(HERE)))
    lib.kw_checks_observer.restype = c_void_p
    lib.kw_checks_begin.argtypes = (ctypes.c_uint, ctypes.c_ubyte)
    lib.kw_checks_begin.restype = None
    lib.kw_checks_launch.argtypes = (POINTER(RawRegion), c_size_t) * 2
    lib.kw_checks_launch.restype = None
    lib.kw_checks_sync_points.argtypes = (POINTER(c_size_t),)
    lib.kw_checks_sync_points.restype = POINTER(ctypes.c_uint64)
    lib.kw_checks_findings.argtypes = (POINTER(c_size_t),)
    lib.kw_checks_findings.restype = POINTER(RawFinding)
    return lib
