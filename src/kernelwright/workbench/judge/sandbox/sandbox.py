"""The parent's side of a process that runs a user's kernel.

A kernel is arbitrary code. This process is protected from accidents and cheating: the kernel's
process has limits of time and memory, an environment without the user's secrets, and its own cache
folders; the parent owns the inputs and the memory that results are copied to, and holds the
reference and the clock. This is no protection against malice: the process has the user's rights.
Answers are JSON and are checked; nothing that the process writes is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.support.errors import NoSpace, UsageError

from .arena import Arena

#: The environment variables that a kernel's process gets; others may be secrets.
PASSED = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CC", "CXX",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "CUDA_DEVICE_ORDER", "TORCH_CUDA_ARCH_LIST", "USER", "LOGNAME", "CONDA_PREFIX", "NVCC_CCBIN",
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "TRITON_LIBCUDA_PATH",
)  # fmt: skip
CACHES = (
    "HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "KW_CACHE",
)  # fmt: skip
SHARED = 256 << 20  # bytes of memory shared by both processes
ANSWER = 4 << 20  # maximum bytes of an answer


@dataclass(frozen=True)
class Limits:
    """The limits of a kernel's process.

    Attributes:
        load_s: seconds to start, and to prepare a kernel for timing.
        call_s: seconds to import the user's file, and for one call, including compilation.
        memory: bytes of host memory.
    """

    load_s: float = 300.0
    call_s: float = 120.0
    memory: int = 16 << 30

    def __post_init__(self):
        if not self.call_s > 0:
            raise UsageError(f"--timeout: must be more than 0 seconds, is {self.call_s:g}")
        if not self.memory > 0:
            raise UsageError("--memory: must be more than 0 GiB")


#: The exceptions with which a kernel may reject an input.
REFUSALS = ("ValueError", "TypeError", "NotImplementedError", "AssertionError")
#: Exceptions of kernels that need a GPU or its headers, which are not faults of the kernel.
UNABLE = ("ToolchainError", "CompileError", "InterpreterError")


class Failed(Exception):
    """The user's code raised. `kind` is the exception's name, `lines` where in the user's files."""

    def __init__(self, kind: str, message: str, lines: tuple[str, ...]):
        super().__init__(f"{kind}: {message}".rstrip(": "))
        self.kind, self.message, self.lines = kind, message, lines

    @property
    def refused(self) -> bool:
        """Whether the kernel raised an error stating that it does not accept this input."""
        return self.kind in REFUSALS

    @property
    def unable(self) -> bool:
        """Whether this machine cannot build or run the kernel."""
        return self.kind in UNABLE

    @property
    def static(self) -> bool:
        """Whether the error does not depend on values: the kernel cannot be built."""
        return self.kind == "CompileError"


class Died(Exception):
    """The process ended or was stopped; the message states the reason."""


class Process:
    """Starts the kernel's process, exchanges messages with it, and ends it."""

    def __init__(self, device: torch.device, limits: Limits, arena: Arena, *, interpret: bool):
        self.device, self.limits, self.folder = (
            device,
            limits,
            Path(tempfile.mkdtemp(prefix="kernelwright-judge-")),
        )
        self._why = ""
        request, answer = os.pipe(), os.pipe()
        self._write, self._read = request[1], answer[0]
        inherited = (request[0], answer[1], *([arena.fd] if arena.fd >= 0 else ()))
        self._said = (self.folder / "output").open("wb")
        module = f"{__package__}.worker"
        self._popen = subprocess.Popen(
            [sys.executable, "-u", "-m", module, str(request[0]), str(answer[1])],
            env=self._environment(interpret),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=inherited,
            start_new_session=True,
        )
        os.close(request[0])
        os.close(answer[1])
        self._guard = threading.Thread(target=self._watch_memory, daemon=True)
        self._guard.start()
        threads = torch.get_num_threads()
        self.pid = self.ask(
            "start", limits.load_s, device=str(device), arena=arena.told(), threads=threads
        )["pid"]

    def _environment(self, interpret: bool) -> dict[str, str]:
        kept = {k: os.environ[k] for k in PASSED if k in os.environ}
        package = str(Path(__file__).resolve().parents[4])
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (package, kept.get("PYTHONPATH"))))
        for name in CACHES:
            folder = self.folder / name.lower()
            folder.mkdir()
            kept[name] = str(folder)
        if interpret:
            kept |= {"TRITON_INTERPRET": "1", "NUMBA_ENABLE_CUDASIM": "1"}
        return kept

    def ask(self, do: str, seconds: float | None = None, **request: Any) -> Any:
        """Send a request and return its answer.

        Raises:
            Failed: the user's code raised. Died: the process has ended: it took too much time or
                memory, crashed, or sent an invalid answer. NoSpace: the disk is full.
        """
        if self.device.type == "cuda":  # wait until shared memory has been written
            torch.cuda.synchronize(self.device)
        text = json.dumps({"do": do, **request}).encode()
        end = time.monotonic() + (self.limits.call_s if seconds is None else seconds)
        try:
            os.write(self._write, struct.pack("<I", len(text)))
            view = memoryview(text)
            while view:
                view = view[os.write(self._write, view) :]
            (size,) = struct.unpack("<I", self._take(4, end))
            if size > ANSWER:
                self._end(f"answered {size} bytes")
                raise OSError
            answer = json.loads(self._take(size, end))
        except OSError:
            raise Died(self._reason()) from None
        except ValueError as e:
            self._end(f"its answer cannot be read: {e}")
            raise Died(self._why) from None
        if not isinstance(answer, dict) or not answer.keys() <= {"ok", "error"}:
            self._end("its answer is invalid")
            raise Died(self._why)
        if "error" in answer:
            told = answer["error"]
            if told["type"] == NoSpace.__name__:
                raise NoSpace(str(told["message"]))
            lines = tuple(map(str, told["lines"]))
            raise Failed(str(told["type"]), str(told["message"]), lines)
        return answer["ok"]

    def _take(self, size: int, end: float) -> bytes:
        content = b""
        while len(content) < size:
            left = end - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            if not ready:
                self._end("took longer than its time limit")
            part = os.read(self._read, size - len(content)) if ready else b""
            if not part:
                raise OSError("the process has ended")
            content += part
        return content

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def _reason(self) -> str:
        """Why the process ended, with the last line that it printed."""
        try:
            code = self._popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._kill()
            code = self._popen.returncode
        if self._why:
            return self._why
        said = self.said().strip().splitlines()
        last = f": {said[-1]}" if said else ""
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}{self._line() or last}"
        return f"the process ended with exit code {code}{last}"

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def _line(self) -> str:
        """The user's line in which a crash happened, as printed by `faulthandler`."""
        package = str(Path(__file__).resolve().parents[3])
        for file, line in re.findall(r'File "([^"]+)", line (\d+)', self.said()):
            if not file.startswith((package, sys.prefix, sys.base_prefix, "<")):
                return f" at {file}:{line}"
        return ""

    def said(self) -> str:
        """The last lines that the user's code printed."""
        if not self.folder.exists():
            return ""
        with (self.folder / "output").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4000))
            return file.read().decode(errors="replace")

    def _watch_memory(self) -> None:
        """Monitor resident memory; RLIMIT_AS would forbid the address space that CUDA reserves."""
        path = Path(f"/proc/{self._popen.pid}/statm")
        page = os.sysconf("SC_PAGE_SIZE")
        while self._popen.poll() is None:
            try:
                _, resident, shared, *_ = path.read_text().split()
            except (OSError, ValueError):
                return
            if (int(resident) - int(shared)) * page > self.limits.memory:
                self._end(f"took more than its {self.limits.memory >> 20} MiB of memory")
                return
            time.sleep(0.05)

    def close(self) -> None:
        """End the process and its child processes, and remove its folder."""
        self._kill()
        os.close(self._write)
        os.close(self._read)
        self._said.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Box:
    """A kernel in a separate process.

    Use as a context manager. After `Died` the box cannot be used any more.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        limits: Limits | None = None,
        size: int | None = None,
        interpret: bool | None = None,
    ):
        self.device, self.limits = device, limits or Limits()
        self.arena = Arena(device, size or SHARED)
        cpu = device.type == "cpu"
        self.process = Process(
            device, self.limits, self.arena, interpret=cpu if interpret is None else interpret
        )
        self._count, self._released = 0, list[int]()
        self.done = set[str]()  # checks that one case of the loaded kernel has passed

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        self.process.close()
        self.arena.close()

    def load(self, path: Path, name: str, *, make: bool = False, **kind: Any) -> dict[str, Any]:
        """Import the user's file and take a function from it.

        Raises:
            Failed: importing it failed; its kind is "NoFunction" if there is no such function.
        """
        self.done.clear()
        return self.process.ask("load", path=str(path), name=name, make=make, kind=kind)

    def rearm(self, size: int, largest: int) -> None:
        """Share memory of another size; the memory shared before must not be used any more."""
        self.arena = Arena(self.device, max(size, SHARED), self.arena.fd, largest)
        self.process.ask("arena", arena=self.arena.told())

    def next(self) -> int:
        self._count += 1
        return self._count

    def released(self) -> list[int]:
        runs, self._released = self._released, []
        return runs

    def forget(self, run: int) -> None:
        self._released.append(run)
