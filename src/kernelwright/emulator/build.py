"""Builds kernels into shared libraries for this CPU, several instantiations of one source in each.

The headers are precompiled (g++ only). Compiling a translation unit has a large fixed cost, so
kernels that are needed together are built together: `ensure` takes all kernels of a rung. A library
is found by a hash of its sources; next to it, a note for each kernel says which library has it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache as once
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.support import cache, includes
from kernelwright.support.errors import CompileError, ToolchainError
from kernelwright.support.progress import waiting

from . import compiler, messages

if TYPE_CHECKING:
    from kernelwright.contract import CudaKernel

BATCH = 16  # kernels per library, so that several cores have work
MOST_SHARED = 232_448  # bytes a block may have on an H200
LIBRARY = "kernels.so"


def library_of(kernel: CudaKernel, kind: str) -> tuple[Path, int]:
    """The library that holds a kernel, built now if missing, and the kernel's number in it.

    Raises:
        CompileError: as `ensure`.
    """
    note = _note(kernel, kind)
    if note is None:
        ensure([kernel], kind)
        note = _note(kernel, kind)
        assert note is not None, kernel
    return note


def ensure(kernels: Iterable[CudaKernel], kind: str = "fast") -> None:
    """Build those of `kernels` that are missing, those of one source together.

    Raises:
        CompileError: naming the construct that the emulator does not support and its line, or with
            the compiler's message. ToolchainError: there is no compiler.
    """
    if why := compiler.missing(kind):
        raise ToolchainError(why)
    by_source: dict[Path, list[CudaKernel]] = defaultdict(list)
    for kernel in sorted(set(kernels), key=lambda k: k.name):
        by_source[kernel.source].append(kernel)
    for source, wanted in by_source.items():
        if all(_note(k, kind) for k in wanted):
            continue
        runtime(), prelude(kind)
        what = f"building {source.name} for the CPU"
        with waiting(what), cache.locked("emulated", str(source.resolve()), kind):
            absent = [k.name for k in wanted if _note(k, kind) is None]
            batches = [tuple(absent[i : i + BATCH]) for i in range(0, len(absent), BATCH)]
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                list(pool.map(partial(_build, source, kind), batches))


@once
def runtime() -> Path:
    """The runtime's library, shared by all kernels of the process."""
    entry = cache.key(["runtime", emulator_key(), compiler.version(), *_runtime_flags()])

    def build(work: Path) -> cache.Files:
        out = work / "runtime.so"
        sources = [str(compiler.HERE / name) for name in compiler.RUNTIME]
        process = run_compiler(work, [*_runtime_flags(), "-shared", *sources, "-o", str(out)])
        if process.returncode:
            raise CompileError(f"{compiler.command()[0]} refused the runtime:\n{process.stderr}")
        return {out.name: out.read_bytes()}

    return cache.get_or_build("emulated", entry, "building the emulator", build) / "runtime.so"


@once
def prelude(kind: str) -> Path:
    """The header that every unit includes first; for g++, its precompiled form is next to it."""
    entry = cache.key(["prelude", emulator_key(), compiler.version(), *compiler.flags(kind)])

    def build(work: Path) -> cache.Files:
        header, out = work / "prelude.h", work / "prelude.h.gch"
        included = ("kw_emulator.h", "cuda_fp16.h", "cuda_bf16.h")
        header.write_text("".join(f"#include <{h}>\n" for h in included))
        files = {header.name: header.read_bytes()}
        if compiler.is_gnu():
            process = run_compiler(
                work, [*_options(kind), "-x", "c++-header", str(header), "-o", str(out)]
            )
            if process.returncode:
                raise CompileError(f"{compiler.command()[0]} refused a header:\n{process.stderr}")
            files[out.name] = out.read_bytes()
        return files

    what = "building the emulator's headers"
    return cache.get_or_build("emulated", entry, what, build) / "prelude.h"


@once
def observer(folder: Path) -> Path:
    """The library of an observer: <name>.cpp and its headers in a folder <name>.

    Raises:
        CompileError, ToolchainError: as `ensure`.
    """
    name, source = f"{folder.name}.so", folder / f"{folder.name}.cpp"
    texts = [p.read_bytes() for p in sorted((*folder.glob("*.h"), *folder.glob("*.cpp")))]
    # what the C++ library's templates make in a watched program must not stand in for its own
    options = [*_runtime_flags(), "-fvisibility=hidden", "-Wl,-Bsymbolic-functions"]
    entry = cache.key(["observer", runtime().parent.name, *texts, *options])

    def build(work: Path) -> cache.Files:
        out = work / name
        command = ["-shared", f"-I{compiler.HERE}", str(source), str(runtime()), "-o", str(out)]
        process = run_compiler(work, [*options, *command])
        if process.returncode:
            raise CompileError(f"{compiler.command()[0]} refused {source.name}:\n{process.stderr}")
        return {name: out.read_bytes()}

    return cache.get_or_build("emulated", entry, f"building {source.name}", build) / name


def _options(kind: str) -> list[str]:
    return [*compiler.flags(kind), *(f"-I{p}" for p in (compiler.HERE / "include", compiler.HERE))]


def _runtime_flags() -> tuple[str, ...]:
    own = ("-DKW_AVX2",) if "-mavx2" in compiler.processor_flags() else ()
    return (*compiler.LANGUAGE, "-O2", "-g1", "-fno-exceptions", *own)


def _build(source: Path, kind: str, names: tuple[str, ...]) -> None:
    """A library of kernels, and the note of each."""
    entry = cache.key([*_basis(source, kind), *names])

    def build(work: Path) -> cache.Files:
        unit, object_file, out = (work / n for n in (compiler.UNIT, "unit.o", LIBRARY))
        unit.write_text(unit_of(source, names))
        include = [*(f"-I{p}" for p in includes.folders(source)), "-include", str(prelude(kind))]
        from . import hopper

        if hopper.needed(includes.texts(source)):
            unit, include = _translated(unit, source, [*include, *_options(kind)]), []
        process = run_compiler(
            work, [*include, *_options(kind), "-c", str(unit), "-o", str(object_file)]
        )
        if not process.returncode:
            # separately, because with -fsanitize=thread the link would add libtsan
            link = ["-shared", str(object_file), str(runtime()), "-Wl,--no-undefined", "-lm"]
            process = run_compiler(work, [*link, "-o", str(out)])
        if process.returncode:
            raise CompileError(messages.explain(process.stderr, source, unit))
        return {LIBRARY: out.read_bytes()}

    what = f"building {source.name} for the CPU"
    cache.get_or_build("emulated", entry, what, build)
    from kernelwright.contract import CudaKernel

    for number, name in enumerate(names):
        note = {"at": f"{entry} {number}".encode()}
        cache.put("emulated-note", _note_key(CudaKernel(source, name), kind), note)


def _translated(unit: Path, source: Path, options: list[str]) -> Path:
    """The preprocessed unit, with C++ in place of asm statements."""
    out = unit.with_suffix(".ii")
    keep = ["-fpch-preprocess"] if compiler.is_gnu() else []
    process = run_compiler(unit.parent, [*options, *keep, "-E", str(unit), "-o", str(out)])
    if process.returncode:
        raise CompileError(messages.explain(process.stderr, source, unit))
    from .hopper.statements import translated  # whole programs' parts of it import this module

    out.write_text(translated(out.read_text()))
    return out


def unit_of(source: Path, names: Iterable[str]) -> str:
    """The translation unit: the unmodified source, and an entry for each kernel."""
    text = "\n".join(includes.texts(source))
    dynamic = sorted(set(re.findall(r"extern\s+__shared__\s[^;]*?(\w+)\s*\[\s*\]\s*;", text)))
    labels = "".join(f" KW_LABEL({n})" for n in ("kw_dynamic", *dynamic))
    shared = "KW_NO_DYNAMIC_SHARED"
    if dynamic:
        shared = f"KW_DYNAMIC_ALIGNED({MOST_SHARED}, {_alignment(text)},{labels})"
    entries = [f"KW_ENTRY({i}, {name})" for i, name in enumerate(names)]
    return "\n".join([f'#include "{source.resolve()}"', *entries, shared, ""])


def _alignment(text: str) -> int:
    """Of the dynamic shared memory, which follows the static as closely as on a GPU: 16 bytes, if
    no declaration asks for more."""
    declared = re.findall(r"extern\s[^;]*?__shared__\s[^;]*?\[\s*\]\s*;", text)
    asked = [a for d in declared for a in re.findall(r"align\w*\s*\(\s*([^()]*)\)", d)]
    return max((int(a) if a.isdecimal() else 1024 for a in asked), default=16)


def run_compiler(work: Path, arguments: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run the compiler, with its temporary files in `work`."""
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(work)}
    command = [*compiler.command(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def _note(kernel: CudaKernel, kind: str) -> tuple[Path, int] | None:
    """The library that holds a kernel and its number in it, if both are undamaged."""
    note = cache.find("emulated-note", _note_key(kernel, kind))
    if note is None:
        return None
    entry, number = (note / "at").read_text().split()
    folder = cache.find("emulated", entry)
    return (folder / LIBRARY, int(number)) if folder else None


def _note_key(kernel: CudaKernel, kind: str) -> str:
    return cache.key([*_basis(kernel.source, kind), kernel.name])


def _basis(source: Path, kind: str) -> list[str]:
    """The files that every library of a source depends on. Their paths are part of its debug
    info."""
    texts = includes.texts(source)
    own = (emulator_key(), compiler.version(), *compiler.flags(kind), *_runtime_flags())
    return [str(source.resolve()), *texts, *own]


@once
def emulator_key() -> str:
    """The compiler and the emulator's files that kernels are compiled against, with their folder,
    which distinguishes them from the kernel's own files in debug info. Observers in subfolders and
    the headers of whole programs are not included."""
    # libcu++'s headers have no suffix
    include = (p for p in (compiler.HERE / "include").rglob("*") if p.is_file())
    own = (p for p in include if compiler.HERE / "include" / "program" not in p.parents)
    translator = (compiler.HERE / "hopper").glob("*.py")
    files = sorted([*compiler.HERE.glob("*.h"), *compiler.HERE.glob("*.cpp"), *own, *translator])
    return cache.key([str(compiler.HERE), *(p.read_bytes() for p in files)])
