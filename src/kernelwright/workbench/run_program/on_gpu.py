"""Builds a CUDA program by nvcc and runs it on this machine's GPU.

The program's other files and headers are searched as for the emulator. What binds kernels to
PyTorch is omitted here too, so that both run the same code.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path

from kernelwright.emulator import program
from kernelwright.emulator.program import (
    build,
    headers,
    included_libraries,
    project,
    sources,
    torch_bindings,
)
from kernelwright.emulator.program.tokens import tokens
from kernelwright.support import cache
from kernelwright.support.errors import CompileError, ToolchainError
from kernelwright.toolchain import tools

NONE = program.Options()
_PROGRAM = "program"
_UNDEFINED = re.compile(r"undefined reference to [`'](?:[^'(<]*::)?(\w+)[^']*'", re.IGNORECASE)
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def run_on_gpu(source: Path, arguments: Sequence[str], options: program.Options = NONE) -> int:
    """Build a program, run it and return its exit code.

    Raises:
        ToolchainError: there is no GPU, or no nvcc that builds for it. CompileError: nvcc rejects
            the program. UsageError: it has no `main`.
    """
    executable = built(source.resolve(), architecture(nvcc(), capability()), options)
    code = subprocess.run([str(source), *arguments], executable=executable).returncode
    return code if code >= 0 else 128 - code  # ended by a signal, as a shell says it


def capability() -> tuple[int, int]:
    """The compute capability of the GPU on which a program starts.

    Raises:
        ToolchainError: there is none, or no driver.
    """
    without = "Without --gpu, the program runs in the emulator"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise ToolchainError(f"--gpu: this machine has no NVIDIA driver. {without}") from None
    count, device, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or not count.value:
        raise ToolchainError(f"--gpu: the driver finds no GPU (error {error}). {without}")
    driver.cuDeviceGet(ctypes.byref(device), 0)
    numbers: list[int] = []
    for what in (_MAJOR, _MINOR):
        driver.cuDeviceGetAttribute(ctypes.byref(number), what, device)
        numbers.append(number.value)
    return numbers[0], numbers[1]


def nvcc() -> Path:
    """nvcc: of CUDA_HOME if that is set, else the newest that is found.

    Raises:
        ToolchainError: there is none.
    """
    home = os.environ.get("CUDA_HOME")
    if home:
        path = Path(home) / "bin" / "nvcc"
        if not path.is_file():
            raise ToolchainError(
                f"--gpu: CUDA_HOME is {home}, which has no bin/nvcc: set it to the folder of a "
                "CUDA toolkit, or unset it"
            )
        return path
    try:
        return tools.find("nvcc")[0]
    except ToolchainError:
        raise ToolchainError(
            "--gpu needs nvcc, which is not on this machine: install the CUDA toolkit "
            "(https://developer.nvidia.com/cuda-downloads, or conda install -c nvidia cuda-toolkit)"
        ) from None


def architecture(compiler_: Path, of: tuple[int, int]) -> str:
    """The value of nvcc's option -arch for a GPU.

    Raises:
        ToolchainError: this nvcc does not know the GPU.
    """
    name = f"sm_{of[0]}{of[1]}"
    known = subprocess.run([compiler_, "--list-gpu-code"], capture_output=True, text=True)
    if name not in known.stdout.split():
        range_ = known.stdout.split() or [known.stderr.strip()]
        raise ToolchainError(
            f"{compiler_} does not build for this GPU, {name}; it knows {', '.join(range_)}: "
            "install a CUDA toolkit that does, and set CUDA_HOME to it"
        )
    return f"{name}a" if of[0] >= 9 else name  # a: with the instructions of this architecture alone


def built(source: Path, arch: str, options: program.Options = NONE) -> Path:
    """The executable of a program for a GPU, built now if it is missing.

    Raises:
        CompileError, UsageError: as `run_on_gpu`.
    """
    files = sources.own_files(source, options)
    build.require_main(source, options)
    texts = [part for path, text in files.items() for part in (str(path), build.source_bytes(text))]
    units = sources.candidate_units(source, options)
    others = [
        part for p in units for part in (str(p), build.source_bytes(project.text_or_empty(p)))
    ]
    given = (*options.command(), options.standard)
    entry = cache.key([*texts, *others, *given, *map(str, _helpers()), arch, *_version(nvcc())])

    def compile_(work: Path) -> cache.Files:
        return {_PROGRAM: _link(work, source, files, arch, options).read_bytes()}

    what = f"building {source.name} by nvcc for {arch}"
    path = cache.get_or_build("gpu-program", entry, what, compile_) / _PROGRAM
    path.chmod(0o700)
    return path


def _link(
    work: Path, source: Path, files: dict[Path, str], arch: str, options: program.Options
) -> Path:
    """Compile the source; with the files beside it that define what is missing."""
    headers = work / "headers"
    headers.mkdir()
    for header in _helpers():
        shutil.copy(header, headers)
    out = work / _PROGRAM
    units, left = (
        [_unit(work, source, files[source])],
        list(sources.candidate_units(source, options)),
    )
    while True:
        folders = (source.parent, *project.include_folders(source, options), headers)
        standard = f"-std={(options.standard or 'c++17').replace('gnu', 'c')}"
        its = ["-O2", standard, f"-arch={arch}", "-w", *(f"-I{p}" for p in folders)]
        its += [f"-D{name}={value}" for name, value in options.defines]
        if len(units) > 1:
            its.append("-rdc=true")  # kernels and device variables of several files
        if build.uses_openmp(files):
            its.append("-Xcompiler=-fopenmp")
        linked = [f"-l{name}" for name in included_libraries(source, options)]
        command = [str(nvcc()), *its, *map(str, units), "-o", str(out), *linked]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if not done.returncode:
            return out
        log = done.stdout + done.stderr
        missing = set(_UNDEFINED.findall(log))
        more = [p for p in left if any(sources.defines(p, name) for name in missing)]
        if not more:
            raise CompileError(f"nvcc rejects {source.name}:\n{log.strip()}")
        left = [p for p in left if p not in more]
        units += more


def _unit(work: Path, source: Path, text: str) -> Path:
    """The source, or a copy without the parts that bind its kernels to PyTorch."""
    parts = sorted(torch_bindings.spans(text, tokens(text)))
    if not parts:
        return source
    pieces, at = [f'#line 1 "{source}"\n'], 0
    for start, end in parts:
        pieces += [text[at:start], "\n" * text.count("\n", start, end)]
        at = max(at, end)
    copy = work / source.name
    copy.write_bytes(build.source_bytes("".join([*pieces, text[at:]])))
    return copy


@once
def _helpers() -> tuple[Path, ...]:
    """Headers of NVIDIA's samples, for programs that do not come with them."""
    return tuple(sorted(headers.LIBRARIES.glob("helper_*.h")))


@once
def _version(compiler_: Path) -> tuple[str, ...]:
    done = subprocess.run([compiler_, "--version"], capture_output=True, text=True)
    return str(compiler_), done.stdout
