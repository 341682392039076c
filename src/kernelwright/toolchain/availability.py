"""Which backends work on this machine, and a one-line reason for each that does not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from functools import cache

from kernelwright.support.errors import ToolchainError

from . import modes
from .versions import TESTED


@cache
def missing(backend: str, device_type: str) -> str | None:
    """Why `backend` cannot run on a device of this type here, or None."""
    if backend == "torch":
        return None
    if device_type not in ("cpu", "cuda"):
        return f"{backend} rungs run on CUDA and CPU tensors, not on {device_type}"
    check = {"inductor": _inductor, "triton": _triton, "cuda": _cuda, "numba": _numba}[backend]
    try:
        return check(device_type == "cuda")
    except ToolchainError as e:
        return str(e)


def _inductor(gpu: bool) -> str | None:
    if gpu:
        return _triton(True)
    compilers = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if not any(c and shutil.which(c.split()[0]) for c in compilers):
        return "torch.compile needs a C++ compiler on a CPU: install g++ or set CXX"
    return None


def _triton(gpu: bool) -> str | None:
    reason = _too_old("triton")
    if reason:
        return reason
    if gpu:
        if os.environ.get("TRITON_INTERPRET") == "1":
            return "TRITON_INTERPRET=1 is set: triton interprets and cannot compile for the GPU"
        return _no_launcher()
    if modes.compiling():
        return _one_mode("Triton", "the interpreter")
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        return "triton was imported in its compiling mode; set TRITON_INTERPRET=1 to interpret"
    return None


def _cuda(gpu: bool) -> str | None:
    if not gpu:
        from kernelwright import emulator

        return emulator.missing()
    from . import driver, nvrtc

    nvrtc.include_folders()
    compiler, supported = nvrtc.version(), driver.version()
    if compiler[0] > supported[0]:
        return (
            f"NVRTC is {_dotted(compiler)}, but the driver supports CUDA {_dotted(supported)}: "
            f'update the driver, or pip install "nvidia-cuda-nvrtc<{supported[0] + 1}"'
        )
    return _no_launcher()


def _numba(gpu: bool) -> str | None:
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: pip install numba-cuda"
    if gpu:
        if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
            return "NUMBA_ENABLE_CUDASIM=1 is set: numba simulates and cannot use the GPU"
        return None
    if modes.compiling():
        return _one_mode("Numba", "the simulator")
    if "numba" in sys.modules and os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
        return "numba was imported in its compiling mode; set NUMBA_ENABLE_CUDASIM=1 to simulate"
    return None


def _one_mode(language: str, imitation: str) -> str:
    return f"{language} compiles for a GPU in this process; {imitation} needs a machine without one"


def _no_launcher() -> str | None:
    from . import driver

    driver.launchers()  # raises with the reason if there is no driver or no C compiler
    return None


def _too_old(package: str) -> str | None:
    """Why an installed version is too old, or None: versions before the oldest tested are."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed: pip install {package}"
    oldest = TESTED[package][0]
    if _numbers(version) < _numbers(oldest):
        return f"{package} {version} is too old: {oldest} or newer is needed"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
