"""The C++ compiler of this machine, and its options for each kind of build."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from kernelwright.support.errors import ToolchainError

HERE = Path(__file__).resolve().parent
#: The file that includes a program and instantiates its kernels.
UNIT = "unit.cpp"
RUNTIME = ("runtime.cpp", "tensor_cores.cpp", "tsan_hooks.cpp")
LANGUAGE = ("-std=c++17", "-fPIC", "-pthread", "-w")
#: CUDA C++ allows type punning, has wrapping integers and rounds after each operation. The linker
#: options prevent symbols of one kernel's library from resolving to another's.
DIALECT = (
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fsigned-char",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fvisibility=hidden",
)
#: The last option: an error inside a macro is reported at the line that uses it.
GNU_ONLY = ("-fno-gnu-unique", "-fno-extern-tls-init", "-ftrack-macro-expansion=0")
# addr2line of binutils 2.40 confuses the first files of a DWARF 5 table, hence DWARF 4.
_WATCHED = ("-O1", "-g", "-gdwarf-4", "-fsanitize=thread", "-DKW_WATCHED")
KINDS = {
    "fast": ("-O2", "-g1", "-gdwarf-4"),
    "watched": _WATCHED,
    "dissected": (*_WATCHED, "-fsanitize-coverage=trace-pc"),
    "debug": ("-O0", "-g3", "-gdwarf-4", "-fno-inline"),
}


def missing(kind: str = "fast") -> str | None:
    """Why kernels cannot be built this way on this machine, or None."""
    if sys.platform != "linux":
        return f"CUDA C++ is emulated on Linux; this is {sys.platform}"
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"CUDA C++ is emulated on x86-64 and aarch64; this is {platform.machine()}"
    try:
        command()
    except ToolchainError as e:
        return str(e)
    if "-fsanitize=thread" in KINDS[kind] and not is_gnu():
        return (
            f"{command()[0]} splits vector accesses and merges barriers, which would hide errors: "
            "the checks need g++; install it, or set CXX to it"
        )
    return None


@cache
def command() -> tuple[str, ...]:
    """CXX, or g++, clang++ or c++ from PATH.

    Raises:
        ToolchainError: there is none.
    """
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        if not shutil.which(named[0]):
            raise ToolchainError(f"CXX is {named[0]}, and there is no such program")
        return tuple(named)
    compiler = next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
    if compiler is None:
        raise ToolchainError(
            "CUDA C++ rungs run on a CPU through a C++ compiler: install g++ or set CXX"
        )
    return (compiler,)


@cache
def version() -> str:
    """The compiler's version output."""
    process = subprocess.run([*command(), "--version"], capture_output=True, text=True, check=True)
    return process.stdout.splitlines()[0]


def is_gnu() -> bool:
    return "clang" not in version()


@cache
def flags(kind: str) -> tuple[str, ...]:
    """The options of a kind of build, for kernels."""
    own = GNU_ONLY if is_gnu() else ()
    if "-fsanitize=thread" in KINDS[kind]:
        own += ("--param", "tsan-distinguish-volatile=1")
    if kind in ("watched", "dissected"):
        own += ("-fno-tree-sra",)  # a vector stays one access
    return (*LANGUAGE, *DIALECT, *own, *processor_flags(), *KINDS[kind])


def processor_flags() -> tuple[str, ...]:
    """Fused multiply-add and 16-bit conversions as instructions, where this processor has them."""
    if platform.machine() != "x86_64":
        return ()
    has = set(Path("/proc/cpuinfo").read_text().split())
    return ("-mfma", "-mf16c", "-mavx2") if {"fma", "f16c", "avx2"} <= has else ()
