"""A single kernel of the user's file, FILE.cu:KERNEL with a launch file, in commands that otherwise
take a rung."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.support.errors import GOOD, WRONG, UsageError

from .options import printing

if TYPE_CHECKING:
    from kernelwright.emulator.program import Result

Launch = Annotated[
    Path | None,
    typer.Option(
        "--launch",
        metavar="FILE.py",
        help="For FILE.cu:KERNEL: the kernel's tensors and its launch.",
        show_default=False,
    ),
]


def named(names: Iterable[str], launch: Path | None) -> str | None:
    """The kernel given to a command instead of rungs, or None.

    Raises:
        UsageError: a launch file without a kernel, or a kernel together with other names.
    """
    own = [n for n in names if ".cu:" in n]
    if launch and not own:
        raise UsageError("--launch: is only for a kernel of a file, FILE.cu:KERNEL")
    if own and len(list(names)) > 1:
        raise UsageError(f"{own[0]}: give a kernel of a file as the only argument")
    return own[0] if own else None


def check(
    target: str, launch: Path | None, names: Iterable[str], seed: int | None, as_json: bool
) -> int:
    """verify --check: run the schedules that rungs are checked with, until one finds something."""
    with printing(as_json) as out:
        from kernelwright.emulator.checks import checks_of
        from kernelwright.workbench.run_program import one_kernel, run_program
        from kernelwright.workbench.sanitize import report

        from .render import programs, terminal

        with terminal.checked(), tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
            checks = checks_of(names)
            if not checks:
                raise UsageError(
                    f"{target}: verify needs --check here; `kernelwright judge` compares results"
                )
            seeds = report.seeds_of(seed, checks)
            program, arguments = one_kernel.program_of(target, launch, Path(folder))
            *first, one = seeds
            for other in first:
                result = run_program.emulated(program, arguments, "h200", checks, other)
                if result.findings or result.notes:
                    one = other
                    break
            else:
                result = run_program.emulated(program, arguments, "h200", checks, one)
        if as_json:
            out.emit({"ok": not _wrong(result), "seed": one, "findings": result.findings})
        else:
            for part in programs.after(result, True):
                out.print(part)
    return WRONG if _wrong(result) else GOOD


def dissect(target: str, launch: Path | None, as_json: bool, wide: bool) -> int:
    """dissect: show the costs of the kernel's first launch."""
    with printing(as_json, wide) as out:
        from kernelwright.workbench.run_program import one_kernel, run_program

        from .render import programs

        with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
            program, arguments = one_kernel.program_of(target, launch, Path(folder))
            result = run_program.dissect(program, arguments, "h200")
        if as_json:
            out.emit(result.dissected)
        else:
            for part in programs.after(result, False):
                out.print(part)
    return WRONG if _wrong(result) else GOOD


def debug(target: str, launch: Path | None, options: Sequence[str] = ()) -> None:
    """debug: gdb replaces this process, so the program's folder is not removed."""
    from kernelwright.workbench.run_program import one_kernel, run_program

    folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
    program, arguments = one_kernel.program_of(target, launch, folder)
    run_program.debug(program, arguments, "h200", options)


def _wrong(result: Result) -> bool:
    return result.failed or result.code != 0
