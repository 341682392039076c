"""Runs a lesson's whole program, with its host code, in the emulator."""

from __future__ import annotations

from pathlib import Path

from kernelwright.emulator import program
from kernelwright.emulator.dissect import Dissected

from .launching import WrongResult


def ran(source: Path) -> tuple[Dissected, ...]:
    """The costs of the first launch of each kernel of a program.

    Raises:
        WrongResult: its result is not what its main expects. CompileError, ToolchainError: see
            `program.run`.
    """
    result = program.run(source, dissects=True)
    if result.code or result.failed:
        said = "; ".join(n.text for n in result.notes)
        raise WrongResult(f"{source.name} ends with {result.code}; {said}")
    return result.dissected
