"""Runs a CUDA program in the emulator, under the checks, or under gdb."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelwright import emulator
from kernelwright.emulator import program
from kernelwright.emulator.checks import checks_of
from kernelwright.support.errors import ToolchainError

NONE = program.Options()
GDB_COMMANDS = Path(emulator.__file__).with_name("gdb_commands.py")
#: GPU models that can be emulated; host/device.cpp has their properties.
MODELS = ("h200", "h100", "a100", "rtx4090", "t4")


def emulated(
    source: Path,
    arguments: Sequence[str],
    gpu: str,
    check: Sequence[str],
    seed: int,
    options: program.Options = NONE,
    limit: float = 0,
) -> program.Result:
    """Run a program in the emulator, with the given checks.

    Raises:
        CompileError, ToolchainError, UsageError: see `program.run`. ValueError: an unknown check or
            GPU.
    """
    known(gpu)
    checks = checks_of(check) if check else ()
    return program.run(
        source, arguments, gpu=gpu, check=checks, seed=seed, options=options, limit=limit
    )


def dissect(
    source: Path, arguments: Sequence[str], gpu: str, options: program.Options = NONE
) -> program.Result:
    """Run a program and count the costs of the first launch of each kernel.

    Raises:
        CompileError, ToolchainError, UsageError, ValueError: see `emulated`.
    """
    known(gpu)
    return program.run(source, arguments, gpu=gpu, dissects=True, options=options)


def debug(
    source: Path,
    arguments: Sequence[str],
    gpu: str,
    gdb: Sequence[str] = (),
    options: program.Options = NONE,
) -> None:
    """Replace this process by gdb, stopped at the start of each kernel's first launch, in its first
    thread.

    Args:
        gdb: further options for gdb, placed first ("-batch").

    Raises:
        ToolchainError: gdb or a compiler is missing. For others see `emulated`.
    """
    known(gpu)
    if not shutil.which("gdb"):
        raise ToolchainError("--debug needs gdb, which is not installed")
    executable, kernels = program.debug_build(source, options)
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
    for name, value in (("gpu", gpu), ("workers", "1"), ("patience", "0")):
        (folder / name).write_text(value)
    setup = [
        "set breakpoint pending on",
        "set confirm off",
        "set print thread-events off",
        "set print inferior-events off",
        "set debuginfod enabled off",
        f"source {GDB_COMMANDS}",
        *(f"kw-kernel {name}" for name in kernels),
        "run",
    ]
    quiet = ("-q", "-iex", "set auto-load python-scripts off")
    own = [str(executable), *arguments]
    command = ["gdb", *quiet, *gdb, *(w for s in setup for w in ("-ex", s)), "--args", *own]
    sys.stdout.flush()
    os.execvpe("gdb", command, {**os.environ, "KERNELWRIGHT_RUN": str(folder)})


def known(gpu: str) -> None:
    """Raises:
    ValueError: the properties of the GPU are not known.
    """
    if gpu not in MODELS:
        raise ValueError(f"--as {gpu}: choose from {', '.join(MODELS)}")
