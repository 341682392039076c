"""Shared libraries of kernels for this CPU: several instantiations of one source in each.

The headers are compiled once, ahead of all sources (g++ only). A unit then costs more than a kernel
of it, so what is known to be needed together is built together: `ensure` takes all kernels of a
rung. A library is found by the content that it was made from; beside it lies a note for each
kernel that says where it is.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache as once
from functools import partial
from pathlib import Path

from kernelwright.contract import CudaKernel
from kernelwright.support import includes

from .. import cache, nvrtc
from ..errors import CompileError, ToolchainError
from ..progress import waiting
from . import compiler, messages

BATCH = 16  # kernels of a library: several cores find work
MOST_SHARED = 232_448  # bytes a block may have on an H200
LIBRARY = "kernels.so"


def find(kernel: CudaKernel, kind: str) -> tuple[Path, int]:
    """The library that holds a kernel, built now where there is none, and its number in it.

    Raises:
        CompileError: as `ensure`.
    """
    found = _note(kernel, kind)
    if found is None:
        ensure([kernel], kind)
        found = _note(kernel, kind)
        assert found is not None, kernel
    return found


def ensure(kernels: Iterable[CudaKernel], kind: str = "fast") -> None:
    """Build what is missing of `kernels`, each source's together.

    Raises:
        CompileError: naming the construct that the emulator does not know and its line, or with
            the compiler's words. ToolchainError: there is no compiler.
    """
    if why := compiler.missing(kind):
        raise ToolchainError(why)
    by_source: dict[Path, list[CudaKernel]] = defaultdict(list)
    for kernel in sorted(set(kernels), key=lambda k: k.name):
        by_source[kernel.source].append(kernel)
    for source, wanted in by_source.items():
        if all(_note(k, kind) for k in wanted):
            continue
        with _alone(), waiting(f"building {source.name} for the CPU"):
            runtime(), prelude(kind)
        with _alone(source, kind):
            absent = [k.name for k in wanted if _note(k, kind) is None]
            batches = [tuple(absent[i : i + BATCH]) for i in range(0, len(absent), BATCH)]
            with (
                waiting(f"building {source.name} for the CPU"),
                ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
            ):
                list(pool.map(partial(_build, source, kind), batches))


@once
def runtime() -> Path:
    """The runtime's library, shared by all kernels of the process."""
    entry = cache.key(["runtime", _emulator(), compiler.version(), *_runtime_flags()])
    path = cache.path("emulated", entry) / "runtime.so"
    if not path.exists():
        sources = [str(compiler.HERE / name) for name in compiler.RUNTIME]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "runtime.so"
            done = _call([*_runtime_flags(), "-shared", *sources, "-o", str(out)])
            if done.returncode:
                raise CompileError(f"{compiler.command()[0]} refused the runtime:\n{done.stderr}")
            cache.put("emulated", entry, {"runtime.so": out.read_bytes()})
    return path


@once
def prelude(kind: str) -> Path:
    """The header that every unit begins with; beside it, compiled, where the compiler is g++."""
    entry = cache.key(["prelude", _emulator(), compiler.version(), *compiler.flags(kind)])
    path = cache.path("emulated", entry) / "prelude.h"
    if not path.exists():
        text = "".join(f"#include <{h}>\n" for h in ("kw_emulator.h", "cuda_fp16.h", "cuda_bf16.h"))
        files = {"prelude.h": text.encode()}
        with tempfile.TemporaryDirectory() as folder:
            header, out = Path(folder) / "prelude.h", Path(folder) / "prelude.h.gch"
            header.write_text(text)
            if compiler.is_gnu():
                done = _call([*_options(kind), "-x", "c++-header", str(header), "-o", str(out)])
                if done.returncode:
                    raise CompileError(f"{compiler.command()[0]} refused a header:\n{done.stderr}")
                files[out.name] = out.read_bytes()
        cache.put("emulated", entry, files)
    return path


@once
def observer(folder: Path) -> Path:
    """The library of an observer: <name>.cpp and headers in a folder <name> of its own.

    Raises:
        CompileError, ToolchainError: as `ensure`.
    """
    name = f"{folder.name}.so"
    texts = [p.read_bytes() for p in sorted((*folder.glob("*.h"), *folder.glob("*.cpp")))]
    entry = cache.key(["observer", runtime().parent.name, *texts, *_runtime_flags()])
    path = cache.path("emulated", entry) / name
    if not path.exists():
        with tempfile.TemporaryDirectory() as made:
            out, source = Path(made) / name, folder / f"{folder.name}.cpp"
            options = [*_runtime_flags(), "-fvisibility=hidden", f"-I{compiler.HERE}", "-shared"]
            done = _call([*options, str(source), str(runtime()), "-o", str(out)])
            if done.returncode:
                raise CompileError(f"{compiler.command()[0]} refused {source.name}:\n{done.stderr}")
            cache.put("emulated", entry, {name: out.read_bytes()})
    return path


def _options(kind: str) -> list[str]:
    return [*compiler.flags(kind), *(f"-I{p}" for p in (compiler.HERE / "include", compiler.HERE))]


def _runtime_flags() -> tuple[str, ...]:
    return (*compiler.LANGUAGE, "-O2", "-g1", "-fno-exceptions")


def _build(source: Path, kind: str, names: tuple[str, ...]) -> None:
    entry = cache.key([*_basis(source, kind), *names])
    with tempfile.TemporaryDirectory() as folder:
        unit, made, out = (Path(folder) / n for n in ("unit.cpp", "unit.o", LIBRARY))
        unit.write_text(unit_of(source, names))
        include = [*(f"-I{p}" for p in includes.folders(source)), "-include", str(prelude(kind))]
        done = _call([*include, *_options(kind), "-c", str(unit), "-o", str(made)])
        if not done.returncode:
            # by itself: with -fsanitize=thread it would bring libtsan
            link = ["-shared", str(made), str(runtime()), "-Wl,--no-undefined", "-lm"]
            done = _call([*link, "-o", str(out)])
        if done.returncode:
            raise CompileError(messages.explain(done.stderr, source, unit))
        cache.put("emulated", entry, {LIBRARY: out.read_bytes()})
    for number, name in enumerate(names):
        note = {"at": f"{entry} {number}".encode()}
        cache.put("emulated-note", _note_key(CudaKernel(source, name), kind), note)


def unit_of(source: Path, names: Iterable[str]) -> str:
    """The translation unit: the source as it is, and an entry for each kernel."""
    text = "\n".join(nvrtc.sources(source))
    dynamic = sorted(set(re.findall(r"extern\s+__shared__\s[^;]*?(\w+)\s*\[\s*\]\s*;", text)))
    labels = "".join(f" KW_LABEL({n})" for n in ("kw_dynamic", *dynamic))
    shared = f"KW_DYNAMIC_SHARED({MOST_SHARED},{labels})" if dynamic else "KW_NO_DYNAMIC_SHARED"
    entries = [f"KW_ENTRY({i}, {name})" for i, name in enumerate(names)]
    return "\n".join([f'#include "{source.resolve()}"', *entries, shared, ""])


def _call(arguments: Iterable[str]) -> subprocess.CompletedProcess[str]:
    command = [*compiler.command(), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )


def _note(kernel: CudaKernel, kind: str) -> tuple[Path, int] | None:
    found = cache.get("emulated-note", _note_key(kernel, kind))
    if found is None:
        return None
    entry, number = found["at"].decode().split()
    path = cache.path("emulated", entry) / LIBRARY
    return (path, int(number)) if path.exists() else None


def _note_key(kernel: CudaKernel, kind: str) -> str:
    return cache.key([*_basis(kernel.source, kind), kernel.name])


def _basis(source: Path, kind: str) -> list[str]:
    """What every library of a source is made from. Its place is in its line numbers' file names."""
    texts = nvrtc.sources(source)
    return [str(source.resolve()), *texts, _emulator(), compiler.version(), *compiler.flags(kind)]


@once
def _emulator() -> str:
    """What kernels are compiled with and against, and where it lies, which line numbers tell from
    the kernel's own files; observers in folders of their own are not."""
    include = (compiler.HERE / "include").rglob("*.h")
    files = sorted([*compiler.HERE.glob("*.h"), *compiler.HERE.glob("*.cpp"), *include])
    return cache.key([str(compiler.HERE), *(p.read_bytes() for p in files)])


@contextmanager
def _alone(*what: object):
    """One process at a time builds a thing: another that needs the same then finds it."""
    folder = cache.root() / "emulated-lock"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / cache.key(map(str, what))[:32], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
