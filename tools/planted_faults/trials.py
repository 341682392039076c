"""Runs a program with all checks, in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernelwright.emulator import program
from kernelwright.emulator.checks import CHECKS
from kernelwright.emulator.program import build
from kernelwright.support.errors import CompileError

from .rules import REACHED

#: A program that takes longer is not used; a mutant that does is found only by what it has said.
SECONDS = 60
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Trial:
    """How a run ended. `found`: the first finding, or why a kernel or a call was stopped; None if
    there is none. `says`: how the program ended, if not by itself with 0."""

    found: str | None
    says: str | None
    reached: bool = False

    @property
    def right(self) -> bool:
        return self.found is None and self.says is None


def trial(source: Path, text: str, arguments: tuple[str, ...]) -> Trial:
    """Run a text in the place of a program."""
    build.prepare("watched")  # its time is not the program's
    file = source.with_name(f"planted_{os.getpid()}_{source.name}")  # beside its headers
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        file.write_text(text)
        process = _FORK.Process(target=_run, args=(file, arguments, out))
        try:
            process.start()
            process.join(SECONDS)
            if process.is_alive() and process.pid:
                os.killpg(process.pid, signal.SIGKILL)
                process.join()
        finally:
            file.unlink()
        result = out / "result"
        if not result.exists():
            return Trial(None, f"stopped after {SECONDS} s")
        found, says = json.loads(result.read_text())
        return Trial(found, says, REACHED in (out / "output").read_text(errors="replace"))


def _run(file: Path, arguments: tuple[str, ...], out: Path) -> None:
    os.setsid()
    os.chdir(file.parent)
    with (out / "output").open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    try:
        done = program.run(file, arguments, check=tuple(CHECKS))
    except CompileError as e:
        answer = (None, f"not built: {str(e).splitlines()[0]}")
    else:
        stopped = [n.text for n in done.notes if n.kind in ("failed", "api")]
        found = [f"{f.check}: {f.text}" for f in done.findings] + stopped
        says = f"exit code {done.code}" if done.code else None
        answer = (found[0].replace(file.name, file.name.split("_", 2)[2]) if found else None, says)
    part = out / "part"
    part.write_text(json.dumps(answer))
    part.rename(out / "result")
