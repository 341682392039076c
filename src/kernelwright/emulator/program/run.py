"""Runs a program in a process of its own, and reads what the runtime tells of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..build import runtime
from . import build
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


def run(
    source: Path, arguments: Sequence[str] = (), kind: str = "fast", gpu: str = "h200"
) -> Result:
    """Build a program and run it with this process's input and output.

    Raises:
        CompileError, ToolchainError, UsageError: as `build.program`.
    """
    runtime()
    executable = build.program(source, kind)
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        (Path(folder) / "gpu").write_text(gpu)
        environment = {**os.environ, "KERNELWRIGHT_RUN": folder}
        command = [str(source), *arguments]
        done = subprocess.run(command, executable=executable, env=environment)
        return Result(done.returncode, _notes(Path(folder), executable))


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
