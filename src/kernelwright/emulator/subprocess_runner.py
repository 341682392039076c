"""Launches kernels that are not part of this package in a separate process.

On a CPU, an out-of-bounds write of a kernel corrupts the process that runs it. Such kernels are
therefore run by a second process (subprocess_main.py). Both processes map the same memory at the
same address; a call's tensors are copied there while its launches run.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.contract import CudaKernel, Plan
from kernelwright.contract.layout import REDZONE
from kernelwright.support.errors import ToolchainError

from . import subprocess_main
from .launch import Crashed

PACKAGE = Path(__file__).resolve().parents[1]
ATTEMPTS = 3
LEAST_BYTES = 64 << 20  # bytes; memory that is never written takes no space
_one_call = threading.Lock()


def needed(plan: Plan) -> bool:
    """Whether a plan launches CUDA C++ that is not part of this package."""
    kernels = [step.kernel for step in plan.launches]
    sources = [k.source for k in kernels if isinstance(k, CudaKernel)]
    own = all(s.resolve().is_relative_to(PACKAGE) for s in sources)
    return len(sources) == len(kernels) and not own


@dataclass(frozen=True)
class SharedCopies:
    """A call's tensors, copied to the shared memory."""

    tensors: dict[str, Any]
    process: Subprocess
    _places: list[tuple[int, int, int]]  # address there, address here, bytes

    def copy_back(self) -> None:
        """Copy what the launches have written back to the call's own tensors."""
        for there, here, size in self._places:
            ctypes.memmove(here, there, size)


@contextmanager
def shared_copies(values: dict[str, Any]) -> Iterator[SharedCopies]:
    """A call's values by name, with its tensors and lists of tensors in the shared memory; one call
    at a time.

    Up to REDZONE bytes of the storage around a tensor are copied too, for the checks of red zones.
    """
    with _one_call:
        spans = _spans(values)
        page = mmap.PAGESIZE
        process = _subprocess(sum(size + 2 * page for _, size in spans))
        places, at = list[tuple[int, int, int]](), process.address
        for start, size in spans:
            there = at + start % page  # the same offset in a page as in this process
            ctypes.memmove(there, start, size)
            places.append((there, start, size))
            at += -(-(start % page + size) // page) * page
        process.used = at - process.address

        def moved(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return [moved(x) for x in v]
            if not isinstance(v, torch.Tensor) or not v.numel():
                return v
            start = v.data_ptr()
            there = next(t + start - here for t, here, n in places if here <= start < here + n)
            return process.tensor(there, v)

        yield SharedCopies({name: moved(v) for name, v in values.items()}, process, places)


def result_in_fork(function: Callable[[], str]) -> str:
    """The result of a function that may crash, run in a forked process; "" if it does."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.disable()  # a crash is expected here
        torch.set_num_threads(1)  # the other threads do not exist in a forked process
        try:
            os.write(write, function().encode()[: select.PIPE_BUF])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def _spans(values: dict[str, Any]) -> list[tuple[int, int]]:
    """(address, bytes) of the memory to copy; tensors that share memory have one span."""
    spans: list[tuple[int, int]] = []
    for v in values.values():
        for t in v if isinstance(v, (list, tuple)) else (v,):
            if isinstance(t, torch.Tensor) and t.numel():
                storage = t.untyped_storage()
                extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
                first = max(storage.data_ptr(), t.data_ptr() - REDZONE)
                last = storage.data_ptr() + storage.nbytes()
                spans.append((first, min(last, t.data_ptr() + extent * t.itemsize + REDZONE)))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            start, before = merged.pop()
            end = max(end, before)
        merged.append((start, end))
    return [(start, end - start) for start, end in merged]


class Subprocess:
    """The other process, and the shared memory."""

    def __init__(self, size: int):
        self.size, self.used = size, 0
        file = os.memfd_create("kernelwright")
        os.truncate(file, size)
        memory = mmap.mmap(file, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        self._printed = os.memfd_create("printed")  # standard output may be redirected later
        answers, theirs = os.pipe()
        arguments = map(str, (file, size, self.address, theirs))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(subprocess_main.__file__)), *arguments],
            stdin=subprocess.PIPE,
            stdout=self._printed,
            stderr=subprocess.DEVNULL,  # messages of the C library at a crash
            pass_fds=(file, theirs),
        )
        os.close(theirs)
        os.close(file)
        self._answers = os.fdopen(answers)
        self.ready = self._answers.readline() != ""

    def launch(self, **request: Any) -> str | None:
        """`kernel_library.launch` in the other process.

        Raises:
            Crashed: the process has ended.
        """
        assert self._process.stdin
        self._process.stdin.write(json.dumps((self.used, request)).encode() + b"\n")
        self._process.stdin.flush()
        line = self._answers.readline()
        self._print()
        if line:
            return json.loads(line)
        code = self.close()
        by = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise Crashed(f"the process that ran it was killed by {by}")

    def _print(self) -> None:
        if size := os.fstat(self._printed).st_size:
            os.write(1, os.pread(self._printed, size, 0))
            os.truncate(self._printed, 0)
            os.lseek(self._printed, 0, os.SEEK_SET)  # the other process writes from there too

    def tensor(self, address: int, like: torch.Tensor) -> torch.Tensor:
        """The shared memory at an address, as a tensor."""
        offset, rest = divmod(address - self.address, like.itemsize)
        assert not rest
        empty = torch.empty(0, dtype=like.dtype)
        return empty.set_(self._storage, offset, like.shape, like.stride())

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> int:
        """End the process, once, and return its exit code."""
        assert self._process.stdin
        if not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._answers.close()
            os.close(self._printed)
        return self._process.wait()


_subprocesses: dict[int, Subprocess] = {}  # by process id: a forked process has none yet


def _subprocess(size: int) -> Subprocess:
    process = _subprocesses.get(os.getpid())
    if process and process.running and process.size >= size:
        return process
    if process:
        process.close()
    for _ in range(ATTEMPTS):
        process = _subprocesses[os.getpid()] = Subprocess(max(LEAST_BYTES, 1 << size.bit_length()))
        if process.ready:
            return process
        if (code := process.close()) != subprocess_main.TAKEN:
            raise ToolchainError(f"{subprocess_main.__file__} ended with exit code {code}")
    raise ToolchainError(f"no memory is free at one address in two processes, {ATTEMPTS} times")
