"""Runs a program in a process of its own, and reads what the runtime tells of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..build import runtime
from ..checks import Finding
from . import build, checks
from .places import with_lines


@dataclass(frozen=True)
class Note:
    """What the runtime tells of a run: `kind` is failed (a kernel was ended), api (a call of the
    host API is wrong) or timed (the program measured emulated time)."""

    kind: str
    text: str


@dataclass(frozen=True)
class Result:
    """How a program ended."""

    code: int
    notes: tuple[Note, ...]
    findings: tuple[Finding, ...] = ()


def run(
    source: Path,
    arguments: Sequence[str] = (),
    gpu: str = "h200",
    check: Sequence[str] = (),
    seed: int = 0,
) -> Result:
    """Build a program and run it with this process's input and output.

    Args:
        gpu: the GPU whose properties it is told.
        check: keys of CHECKS.
        seed: of the order of a block's threads, with checks; 0 for increasing index.

    Raises:
        CompileError, ToolchainError, UsageError: as `build.program`.
    """
    runtime()
    executable = build.program(source, "watched" if check else "fast")
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        settings = {"gpu": gpu}
        if check:
            settings |= checks.settings(executable, check, seed)
        for name, value in settings.items():
            (Path(folder) / name).write_text(value)
        environment = {**os.environ, "KERNELWRIGHT_RUN": folder}
        command = [str(source), *arguments]
        done = subprocess.run(command, executable=executable, env=environment)
        found = checks.findings(Path(folder), executable)
        return Result(done.returncode, _notes(Path(folder), executable), tuple(found))


def _notes(folder: Path, executable: Path) -> tuple[Note, ...]:
    file = folder / "notes"
    if not file.exists():
        return ()
    found: list[Note] = []
    for entry in file.read_text(errors="replace").split("\0"):
        kind, tab, text = entry.partition("\t")
        if tab:
            found.append(Note(kind, with_lines(text, executable)))
    return tuple(found)
