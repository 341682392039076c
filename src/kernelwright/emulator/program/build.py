"""Builds a program: its rewritten files, compiled with the emulator's headers and linked with the
runtime and the host API."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache as once
from pathlib import Path

from kernelwright.support import cache
from kernelwright.support.errors import CompileError, ToolchainError, UsageError

from .. import build, compiler
from . import asm, errors, headers, project, sources
from .options import NONE, Options
from .side_effects import have_side_effects

HERE = Path(__file__).resolve().parent
PROGRAM = "program"  # the name of an executable
#: A program is C++ as nvcc's default takes it, with exceptions.
DROPPED = ("-std=c++17", "-fno-exceptions")
#: Kinds of build in which a kernel may run the threads of a block by loops.
LOOPED = ("fast",)
#: Kinds of build for the checks, in which each index of an array of known size is checked too.
CHECKED = ("watched",)
#: Options that modules do not have: they are shared libraries whose names a program looks up.
_OF_PROGRAMS = ("-fno-pie", "-fvisibility=hidden")
_MOST_REFUSED = 8  # kernels whose loops a compiler refuses, before all go without
#: Names and syntax that need C++20.
_NEWER = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<(?:barrier|bit|compare|concepts|coroutine|format|latch|numbers"
    r"|ranges|semaphore|source_location|span|stop_token|syncstream)>"
    r"|\bstd::(?:span|numbers|ranges|bit_cast)\b"
    r"|\btemplate\s*<[^<>;{}]*>\s*requires\b|\b(?:consteval|constinit)\b",
    re.M,
)
#: no-pie: an address is the same in the file and in the process.
DIALECT = ("-std=gnu++17", "-fpermissive", "-fno-pie", "-U_FORTIFY_SOURCE", "-fno-builtin-clock",
           "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-DCCCL_DISABLE_FP8_SUPPORT",
           "-DCCCL_DISABLE_FP16_SUPPORT", "-DCCCL_DISABLE_BF16_SUPPORT",
           "-DCCCL_DISABLE_NVTX")  # fmt: skip


def program(
    source: Path, kind: str, options: Options = NONE, required: Iterable[Path] = ()
) -> Path:
    """The executable of a program, built now if it is missing.

    Args:
        kind: a key of `compiler.KINDS`.
        required: files that are part of the program, whether or not it uses what they define.

    Raises:
        CompileError: naming the line and the construct that the emulator does not support.
        ToolchainError: a compiler or NVIDIA's headers are missing. UsageError: it has no `main`.
    """
    if why := compiler.missing(kind):
        raise ToolchainError(why)
    source = source.resolve()
    files = sources.own_files(source, options)
    require_main(source, options)
    needed = tuple(p for p in map(Path.resolve, required) if p not in files)
    flags = _flags(kind, files, options)
    prepare(kind)
    texts = [part for path, text in files.items() for part in (str(path), source_bytes(text))]
    units = (*needed, *sources.candidate_units(source, options))
    others = [part for p in units for part in (str(p), source_bytes(project.text_or_empty(p)))]
    others += [str(len(needed)), *options.command(), *map(str, needed)]
    own = [host().parent.name, prelude(kind).parent.name, rewriter_key()]
    entry = cache.key(["program", str(len(files)), *texts, *others, *own, *flags])
    what = f"building {source.name} for the CPU"

    def compile_(work: Path) -> cache.Files:
        out = work / PROGRAM
        _link(work, source, kind, out, options, needed)
        return {PROGRAM: out.read_bytes()}

    path = cache.get_or_build("emulated-program", entry, what, compile_) / PROGRAM
    path.chmod(0o700)
    return path


def prepare(kind: str) -> None:
    """Build what all programs share, side by side, if it is missing."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda make: make(), (host, build.runtime, lambda: prelude(kind))))


@once
def rewriter_key() -> str:
    """The modules that write a program's files as C++."""
    return cache.key(p.read_bytes() for p in sorted(HERE.rglob("*.py")))


def require_main(source: Path, options: Options = NONE) -> None:
    """Raises:
    UsageError: a program cannot be read, or has no function main.
    """
    project.text_of(source)
    if not sources.has_main(source, options):
        raise UsageError(
            f"{source} has no function main: check one kernel with "
            f"`kernelwright verify {source}:KERNEL --launch LAUNCH.py --check all`"
        )


def _link(
    work: Path, source: Path, kind: str, out: Path, options: Options, needed: tuple[Path, ...]
) -> None:
    """Compile the source and the files that are needed, and link them; with the files beside the
    source that define what is missing."""
    left = [p for p in sources.candidate_units(source, options) if p not in needed]
    files = sources.own_files(source, options)
    for p in needed:
        files = {**files, **sources.own_files(p, options)}
    numbers = {p: i for i, p in enumerate((source, *needed, *left))}

    def compiled(path: Path) -> Path:
        folder = work / str(numbers[path])
        folder.mkdir()
        return compiled_object(folder, path, kind, options, whole=path == source)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # at the same time as the source, those that it seems to need
        wanted = (source, *needed, *sources.called_units(files, left))
        started = {p: pool.submit(compiled, p) for p in wanted}
        objects = [started[p].result() for p in (source, *needed)]
        while True:
            libraries = [str(host()), str(build.runtime())]
            link = ["-no-pie", "-pthread", *map(str, objects), *libraries, "-lm", *_linked(files)]
            process = build.run_compiler(work, [*link, "-o", str(out)])
            if not process.returncode:
                return
            missing = errors.missing_names(process.stderr)
            first = (next((p for p in left if sources.defines(p, name)), None) for name in missing)
            more = [p for p in dict.fromkeys(first) if p]  # the nearest one for each name
            if not more:
                known = dict(sources.file_names(sources.own_files(source, options)))
                raise CompileError(errors.explain(process.stderr, source, known))
            left = [p for p in left if p not in more]
            started |= {p: pool.submit(compiled, p) for p in more if p not in started}
            objects += [started[p].result() for p in more]
            for p in more:
                files = {**files, **sources.own_files(p, options)}


def compiled_object(
    folder: Path, source: Path, kind: str, options: Options, whole: bool, module: str = ""
) -> Path:
    """The object of a translation unit, made in an empty folder. `whole`: the unit with `main`,
    which holds what a program has once. `module`: what stands at the end of a module's unit."""
    object_ = folder / "unit.o"
    if source.suffix == ".c":
        given = [*options.command(), *_folders(source, options), *_include()]
        command = ["-x", "c", "-O2", "-g1", "-w", "-fPIC", *given]
        process = build.run_compiler(folder, [*command, "-c", str(source), "-o", str(object_)])
        if process.returncode:
            raise CompileError(errors.explain(process.stderr, source, {}))
        return object_
    files = sources.own_files(source, options)
    unit = folder / compiler.UNIT
    end = f'#line 1 "{compiler.UNIT}"\nKW_WHOLE_PROGRAM({build.MOST_SHARED})\n' if whole else ""
    if have_side_effects(files.values()):
        end += "KW_SIDE_EFFECTS\n"
    if sources.uses_host_libraries(files):
        end += "KW_SHARES\n"
    end += module
    include = ["-include", str(prelude(kind)), f"-I{folder}", *_folders(source, options)]
    flags = [f for f in _flags(kind, files, options) if not module or f not in _OF_PROGRAMS]
    loops, without = kind in LOOPED, frozenset[str]()

    def written() -> dict[str, str]:
        poison = kind in CHECKED
        return sources.rewritten_files(
            files, source, options, loops=loops, without=without, poison=poison
        )

    def compiled(rewritten: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for name, text in rewritten.items():
            (folder / name).write_bytes(source_bytes(text))
        unit.write_text(f'{options.text()}#include "{next(iter(rewritten))}"\n{end}')
        later = any(asm.LATER in text or "<cuda/ptx>" in text for text in rewritten.values())
        return _object(unit, flags, include, object_, preprocessed=later)

    files_written = written()
    process = compiled(files_written)
    while process.returncode and loops:
        # a compiler that refuses the loops gets those kernels as they are, or else all
        before, refused = files_written, errors.functions_with_errors(process.stderr) - without
        without |= refused
        loops = bool(refused) and len(without) <= _MOST_REFUSED and written() != before
        files_written = written()
        if files_written != before:
            process = compiled(files_written)
    if process.returncode:
        raise CompileError(errors.explain(process.stderr, source, dict(sources.file_names(files))))
    return object_


def _object(
    unit: Path, flags: list[str], include: list[str], object_: Path, preprocessed: bool
) -> subprocess.CompletedProcess[str]:
    """Compile a unit; in two steps if macros make operands of its asm statements."""
    if preprocessed:
        out = unit.with_suffix(".ii")
        keep = ["-fpch-preprocess"] if compiler.is_gnu() else []
        options = [*flags, *keep, *include, "-E", str(unit), "-o", str(out)]
        process = build.run_compiler(unit.parent, options)
        if process.returncode:
            return process
        out.write_bytes(source_bytes(asm.preprocessed(project.text_of(out))))
        unit, include = out, []
    return build.run_compiler(unit.parent, [*flags, *include, "-c", str(unit), "-o", str(object_)])


@once
def host() -> Path:
    """The host API and NVIDIA's libraries as one shared library, which all programs use."""
    folders = (HERE / "host", compiler.HERE / "libraries")
    files = sorted(p for f in folders for p in (*f.glob("*.h"), *f.glob("*.cpp")))
    flags = (*compiler.LANGUAGE, "-O2", "-g1", *_processor())
    entry = cache.key(
        [
            "host",
            build.emulator_key(),
            _headers(),
            compiler.version(),
            *(p.read_bytes() for p in files),
            *flags,
        ]
    )

    def checked(process: subprocess.CompletedProcess[str]) -> None:
        if process.returncode:
            raise CompileError(f"{compiler.command()[0]} refused the host API:\n{process.stderr}")

    def compile_(work: Path) -> cache.Files:
        out = work / "host.so"
        units = [p for p in files if p.suffix == ".cpp"]
        objects = [str(work / f"{p.stem}.o") for p in units]
        first = work / "first.h"  # precompiled: half of the time goes into headers
        first.write_text(f'#include "{HERE / "host" / "host.h"}"\n')
        include = _include()
        if compiler.is_gnu():
            precompiled = ["-x", "c++-header", str(first), "-o", f"{first}.gch"]
            checked(build.run_compiler(work, [*flags, *include, *precompiled]))

        def compiled(unit: Path, object_: str) -> subprocess.CompletedProcess[str]:
            command = [*flags, *include, "-include", str(first), "-c", str(unit), "-o", object_]
            return build.run_compiler(work, command)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for process in list(pool.map(compiled, units, objects)):
                checked(process)
        link = ["-shared", *objects, str(build.runtime()), "-o", str(out)]
        checked(build.run_compiler(work, link))
        return {out.name: out.read_bytes()}

    what = "building the emulator's host API"
    return cache.get_or_build("emulated", entry, what, compile_) / "host.so"


@once
def prelude(kind: str) -> Path:
    """The header that every program includes first; for g++, precompiled."""
    flags = _flags(kind, {})
    entry = cache.key(
        ["program-prelude", build.emulator_key(), _headers(), compiler.version(), *flags]
    )

    def compile_(work: Path) -> cache.Files:
        header, out = work / "prelude.h", work / "prelude.h.gch"
        header.write_text("#include <kw_program.h>\n")
        files = {header.name: header.read_bytes()}
        if compiler.is_gnu():
            process = build.run_compiler(
                work, [*flags, *_include(), "-x", "c++-header", str(header), "-o", str(out)]
            )
            if process.returncode:
                raise CompileError(f"{compiler.command()[0]} refused a header:\n{process.stderr}")
            files[out.name] = out.read_bytes()
        return files

    what = "building the emulator's headers"
    return cache.get_or_build("emulated", entry, what, compile_) / "prelude.h"


def _flags(kind: str, files: dict[Path, str], options: Options = NONE) -> list[str]:
    own = [f for f in compiler.flags(kind) if f not in DROPPED]
    parallel = ["-fopenmp"] if uses_openmp(files) else []
    if kind in CHECKED:
        own.append("-fsanitize=bounds")
    if kind in LOOPED and compiler.is_gnu():
        own += ["-fvect-cost-model=dynamic", "-funswitch-loops"]  # loops over threads as vectors
    newer = ["-std=gnu++20"] if any(_NEWER.search(text) for text in files.values()) else []
    if options.standard:
        newer = [f"-std={options.standard}"]
    return [*own, *DIALECT, *newer, *parallel, *(_include() if files else ())]


def uses_openmp(files: dict[Path, str]) -> bool:
    return any("omp.h" in text or "#pragma omp" in text for text in files.values())


def _linked(files: dict[Path, str]) -> list[str]:
    return ["-fopenmp"] if uses_openmp(files) else []


def _processor() -> tuple[str, ...]:
    return compiler.processor_flags()


def _folders(source: Path, options: Options) -> Iterable[str]:
    return (f"-I{p}" for p in project.include_folders(source.resolve(), options))


@once
def _headers() -> str:
    """The headers that only programs include: of CUDA and of NVIDIA's libraries."""
    roots = (headers.PROGRAM, headers.LIBRARIES)
    files = sorted(p for root in roots for p in root.rglob("*") if p.is_file())
    return cache.key([part for p in files for part in (str(p), p.read_bytes())])


@once
def _include() -> tuple[str, ...]:
    return tuple(f"-I{p}" for p in headers.search_path())


def source_bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")
