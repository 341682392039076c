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
    found = program.run(source, dissects=True)
    if found.code or found.failed:
        said = "; ".join(n.text for n in found.notes)
        raise WrongResult(f"{source.name} ends with {found.code}; {said}")
    return found.dissected
