"""Runs a program in a process of its own, and reads the runtime's report of the run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..build import runtime
from ..checks import Finding, report
from ..dissect import Dissected
from . import build, checks, dissect, sources
from .addr2line import with_lines
from .options import NONE, Options
from .rewrite import kernels_of
from .sizes import work_sizes


@dataclass(frozen=True)
class Note:
    """One line of the runtime's report: `kind` is failed (a kernel was ended), api (a call of the
    host API is wrong), timed (the program measured emulated time) or repeated (launches of this
    kernel were not executed, because they repeat an earlier one)."""

    kind: str
    text: str


@dataclass(frozen=True)
class Result:
    """How a program ended. `loops`: the kernels that ran the threads of their blocks by loops."""

    code: int
    notes: tuple[Note, ...]
    findings: tuple[Finding, ...] = ()
    dissected: tuple[Dissected, ...] = ()
    loops: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a kernel was ended or a check found an error."""
        errors = (f for f in self.findings if report.WARNING not in f.text)
        return any(n.kind in ("failed", "api") for n in self.notes) or any(errors)


def run(
    source: Path,
    arguments: Sequence[str] = (),
    gpu: str = "h200",
    check: Sequence[str] = (),
    seed: int = 0,
    dissects: bool = False,
    options: Options = NONE,
    limit: float = 0,
) -> Result:
    """Build a program and run it with this process's input and output.

    Args:
        gpu: the GPU model to emulate; its properties are what the program queries.
        check: keys of CHECKS.
        seed: of the order of a block's threads, with checks; 0 for increasing index.
        dissects: whether to count what the first launch of each kernel costs.
        options: those of a compiler.
        limit: seconds; a launch that will take longer ends the program. 0 for none.

    Raises:
        CompileError, ToolchainError, UsageError: as `build.program`.
    """
    runtime()
    named = source.resolve()
    source = sources.program_of(named, options)
    kind = "watched" if check else "dissected" if dissects else "fast"
    executable = build.program(source, kind, options, () if source == named else (named,))
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        settings = {"gpu": gpu, "limit": str(limit), "kind": kind, "source": str(source)}
        settings |= {"python": sys.executable, "packages": str(_PACKAGES)}
        settings["sizes"] = work_sizes(sources.own_files(source, options).values())
        if check:
            texts = sources.own_files(source, options).values()
            settings |= checks.settings(executable, check, seed, texts)
        if dissects:
            settings |= dissect.settings()
        for name, value in settings.items():
            (Path(folder) / name).write_text(value)
        environment = {**os.environ, "KERNELWRIGHT_RUN": folder}
        command = [str(source), *arguments]
        process = subprocess.run(command, executable=executable, env=environment)
        findings = checks.findings(Path(folder), executable)
        costs = dissect.dissected(Path(folder), source, executable)
        notes = _notes(Path(folder), executable, stopped=bool(findings))
        loops = tuple(n.text for n in notes if n.kind == "loops")
        findings += [Finding("races", n.text) for n in notes if n.kind == "streams"]
        notes = tuple(n for n in notes if n.kind not in ("loops", "streams"))
        return Result(process.returncode, notes, tuple(findings), tuple(costs), loops)


def _notes(folder: Path, executable: Path, stopped: bool) -> tuple[Note, ...]:
    """`stopped`: the findings say why a kernel was ended before it wrote out of bounds."""
    file = folder / "notes"
    if not file.exists():
        return ()
    notes: list[Note] = []
    for entry in file.read_text(errors="replace").split("\0"):
        kind, tab, text = entry.partition("\t")
        if tab and not (stopped and "stopped before it writes" in text):
            notes.append(Note(kind, with_lines(text, executable)))
    return tuple(notes)


def debug_build(source: Path, options: Options = NONE) -> tuple[Path, tuple[str, ...]]:
    """A program built for a debugger, and the names of its kernels.

    Raises:
        CompileError, ToolchainError, UsageError: as `build.program`.
    """
    named = source.resolve()
    source = sources.program_of(named, options)
    required = () if source == named else (named,)
    files = {**sources.own_files(source, options), **sources.own_files(named, options)}
    names = [k for text in files.values() for k in kernels_of(text)]
    return build.program(source, "debug", options, required), tuple(dict.fromkeys(names))


#: Where the package is, for a program that builds modules.
_PACKAGES = Path(__file__).resolve().parents[3]
_LIBRARIES = ("cublasLt", "cublas", "curand", "cufft", "cusparse", "cusolver", "cudnn")


def included_libraries(source: Path, options: Options = NONE) -> list[str]:
    """NVIDIA's libraries whose headers a program includes."""
    texts = "\n".join(sources.own_files(source.resolve(), options).values())
    return [n for n in _LIBRARIES if re.search(rf"#\s*include\s*<{n}(_v2|Dn)?\.h>", texts)]
