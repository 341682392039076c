"""The command that runs a user's own CUDA program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.support.errors import GOOD, WRONG, UsageError

from .options import Wide, printing


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="A CUDA program.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARG", help="The program's own arguments."),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="races|bounds|init|divergence|all",
            help="Check every memory access and barrier of the kernels. Repeatable.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="With --check: seed of the order of the threads.")
    ] = 0,
    dissect: Annotated[
        bool,
        typer.Option(
            "--dissect", help="Show what each line costs: sectors, bank conflicts, lanes."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Run under gdb and stop at the first kernel.")
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Build with nvcc and run on this machine's GPU.")
    ] = False,
    as_: Annotated[
        str,
        typer.Option("--as", metavar="GPU", help="GPU model to emulate (without --gpu)."),
    ] = "h200",
    limit: Annotated[
        float,
        typer.Option(
            "--limit",
            metavar="SECONDS",
            help="End the program if one of its launches will take longer than this.",
            show_default=False,
        ),
    ] = 0,
    define: Annotated[
        list[str] | None,
        typer.Option(
            "-D", metavar="NAME[=VALUE]", help="Define a macro. Repeatable.", show_default=False
        ),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option(
            "-I", metavar="DIR", help="Search a folder for headers. Repeatable.", show_default=False
        ),
    ] = None,
    standard: Annotated[
        str,
        typer.Option(
            "-std", "--std", metavar="c++17|c++20|c++23", help="C++ standard.", show_default=False
        ),
    ] = "",
    wide: Wide = False,
) -> int:
    """Run a complete CUDA program without a GPU, or on one.

    Without --gpu, the program is built with the C++ compiler; main and the host API run on the CPU,
    and kernels run in the emulator.
    Findings are printed on standard error after the program's own output, with file and line. Times
    that the program measures are those of the emulator, not of a GPU. docs: "Whole CUDA programs"
    lists what is supported.

    Exit codes: the program's own; 1 if a check found something or a kernel was stopped, 2 wrong
    usage, 3 it cannot be built here.

    \b
    Examples:
      kernelwright run saxpy.cu
      kernelwright run reduce.cu --check all
      kernelwright run transpose.cu --dissect -- 1024 32
      kernelwright run matmul.cu -DN=512 -Iinclude -std=c++20
      kernelwright run matmul.cu --gpu
    """
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    if sum((bool(check), dissect, debug, gpu)) > 1:
        raise UsageError("--check, --dissect, --debug, --gpu: give only one of them")
    with printing(False):
        from kernelwright.emulator.program import options
        from kernelwright.workbench.run_program import on_gpu
        from kernelwright.workbench.run_program import run_program as module

        from .render import programs, terminal

        own = tuple(arguments or ())
        given = options(define or (), include or (), standard)
        with terminal.checked():
            if gpu:
                return on_gpu.run_on_gpu(file, own, given)
            if debug:
                module.debug(file, own, as_, options=given)
            if dissect:
                result = module.dissect(file, own, as_, given)
            else:
                result = module.emulated(file, own, as_, check or (), seed, given, limit)
        told = terminal.Output(2, wide)
        for part in programs.after(result, bool(check)):
            told.print(part)
        return result.code or (WRONG if result.failed else GOOD)
