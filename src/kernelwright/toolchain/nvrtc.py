"""Compiles CUDA C++ to a cubin with NVRTC; needs headers, but no GPU and no driver."""

from __future__ import annotations

import re
from functools import cache as once
from pathlib import Path

from kernelwright.contract import CudaKernel
from kernelwright.support import cache, cuda_headers, includes
from kernelwright.support.errors import CompileError, ToolchainError

from .compiled import Compiled

FLAGS = ("-std=c++17", "-lineinfo", "--ptxas-options=-v")


def compile(kernel: CudaKernel, arch: str) -> Compiled:
    """`kernel` for `arch` ("sm_90a"), from the cache if its sources have not changed.

    Raises:
        CompileError: compilation fails; the message is NVRTC's log with file and line.
        ToolchainError: NVRTC or the CUDA headers are not installed.
    """
    key = cache.key(
        [
            *includes.texts(kernel.source),
            kernel.name,
            arch,
            *FLAGS,
            str(version()),
            header_version(),
        ]
    )
    what = f"compiling {kernel.source.name} for {arch}"
    entry = cache.get_or_build("cuda", key, what, lambda _: _compile(kernel, arch).files())
    return Compiled.of(cache.read(entry))


def _compile(kernel: CudaKernel, arch: str) -> Compiled:
    from cuda.bindings import nvrtc

    folders = (*includes.folders(kernel.source), *include_folders())
    options = [f"--gpu-architecture={arch}", *FLAGS, *(f"-I{p}" for p in folders)]
    text = kernel.source.read_bytes()
    program = _ok(nvrtc.nvrtcCreateProgram(text, str(kernel.source).encode(), 0, [], []))
    try:
        expression = kernel.name.encode()
        _ok(nvrtc.nvrtcAddNameExpression(program, expression))
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = log.decode(errors="replace").strip("\0 \n")
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{_first_error(log, code)}: {kernel.name} for {arch}\n{log}")
        return Compiled(
            name=_ok(nvrtc.nvrtcGetLoweredName(program, expression)).decode(),
            arch=arch,
            cubin=_bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program),
            ptx=_bytes(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).decode().rstrip("\0"),
            log=log,
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _first_error(log: str, code) -> str:
    """The first error in NVRTC's log: kernel.cu:2: cannot open source file "x.h"."""
    match = re.search(r"^(\S[^\n(]*)\((\d+)\): (?:catastrophic )?error: (.*)$", log, re.M)
    return f"{Path(match[1]).name}:{match[2]}: {match[3]}" if match else f"NVRTC: {code.name}"


def _ok(result: tuple):
    code, *values = result
    if code.value:
        raise CompileError(f"NVRTC: {code.name}")
    return values[0] if values else None


def _bytes(size, get, program) -> bytes:
    buffer = bytearray(_ok(size(program)))
    _ok(get(program, buffer))
    return bytes(buffer)


@once
def version() -> tuple[int, int]:
    """NVRTC's version, (13, 0).

    Raises:
        ToolchainError: cuda-bindings or NVRTC is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        code, major, minor = nvrtc.nvrtcVersion()
    except ImportError:
        raise ToolchainError("cuda-bindings is not installed: pip install cuda-bindings") from None
    except RuntimeError as e:  # raised by cuda-bindings if it does not find the library
        raise ToolchainError(
            f"NVRTC is not installed: pip install nvidia-cuda-nvrtc ({e})"
        ) from None
    assert not code.value, code
    return major, minor


@once
def include_folders() -> tuple[Path, ...]:
    """The folders of the CUDA headers; those of NVRTC's version are preferred.

    Raises:
        ToolchainError: see `cuda_headers.complete`.
    """
    complete = cuda_headers.complete()
    exact = [f for f in complete if cuda_headers.version(f[0]) == version()]
    return (exact or complete)[0]


@once
def header_version() -> str:
    """The version and folder of the CUDA headers that kernels are compiled with."""
    folder = include_folders()[0]
    return f"{cuda_headers.version(folder)} {folder}"
