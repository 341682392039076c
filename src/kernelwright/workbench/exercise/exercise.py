"""`kernelwright exercise`: rungs whose bodies have been removed, to be written by a learner, and
rungs with a fault, to be repaired.

An operator's exercises are data (`exercises.py` in its folder; `practice` has operators that exist
only for exercises). The files are derived from the rungs (files.py) and checked in a separate
process (check.py), so that an endless loop or a crash does not affect the command. Apart from that,
the learner's code runs unrestricted, with the user's rights.

    python -m kernelwright.workbench.exercise.exercise      rewrite the list in docs/exercises.md
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract.exercise import Exercise
from kernelwright.dispatch import ladders
from kernelwright.support import durable
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG, NoSpace, UsageError
from kernelwright.support.settings import PACKAGE

from . import files
from .practice import exercises as practice_exercises

STATE = ".kernelwright-exercises.json"  # in the learner's folder: the results of the last checks
SECONDS = 300.0  # time limit of one case of a check
EXITS = {
    "right": GOOD,
    "unfinished": WRONG,
    "wrong": WRONG,
    "error": WRONG,
    "compiled": INCONCLUSIVE,
}
DOC = PACKAGE.parents[1] / "docs" / "exercises.md"
MARKED = re.compile(r"(<!-- exercises -->\n)(.*?)(<!-- /exercises -->)", re.S)


@dataclass(frozen=True)
class Standing:
    """An exercise and the learner's progress.

    Attributes:
        state: "not started", "started", "right", "changed since it was right", "wrong", "error",
            "compiled".
        why: the message of the last check.
    """

    exercise: Exercise
    file: str
    language: str
    state: str
    why: str = ""


@cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises in learning order."""
    every: list[Exercise] = []
    for package in dict.fromkeys(x.package for x in ladders()):
        if importlib.util.find_spec(f"{package}.exercises"):
            every += importlib.import_module(f"{package}.exercises").EXERCISES
    every += practice_exercises.EXERCISES
    return tuple(sorted(every, key=lambda e: e.place))


def named(name: str) -> Exercise:
    """The exercise with the given name.

    Raises:
        UsageError: there is no such exercise.
    """
    for e in exercises():
        if e.id == name:
            return e
    near = difflib.get_close_matches(name, [e.id for e in exercises()], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"NAME: {name} is not an exercise{meant} (see kernelwright exercise)")


def standings(folder: Path) -> list[Standing]:
    """Every exercise in learning order, with the learner's progress in a folder."""
    kept = _state(folder)
    rows: list[Standing] = []
    for e in exercises():
        of = files.source(e)
        path, last = folder / of.file_name, kept.get(e.id, {})
        state, why = "not started", ""
        if path.is_file():
            state, why = "started", ""
            if last.get("hash") == _hash(path):
                state, why = last["outcome"], last["why"]
                state = "started" if state == "unfinished" else state
            elif last.get("outcome") == "right":
                state = "changed since it was right"
        rows.append(Standing(e, of.file_name, of.rung.backend, state, why))
    return rows


def following(folder: Path) -> Exercise | None:
    """The next exercise: the first that is not right."""
    return next((s.exercise for s in standings(folder) if s.state != "right"), None)


def write(exercise: Exercise, folder: Path) -> Path:
    """Write a learner's file; returns its path.

    Raises:
        UsageError: there is no such folder, or the file already exists.
    """
    if not folder.is_dir():
        raise UsageError(f"--into: there is no folder {folder}")
    path = folder / files.source(exercise).file_name
    if path.exists():
        raise UsageError(
            f"NAME: {path} already exists. Edit it, then: kernelwright exercise "
            f"{exercise.id} --check (to start again, delete it)"
        )
    durable.write_text(path, files.text(files.source(exercise)))
    return path


def check(
    exercise: Exercise,
    folder: Path,
    *,
    on_case: Callable[[str], None] = lambda case: None,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Check a learner's file in a separate process. Returns the fields of `check.Outcome` and, on a
    GPU, `timed`, rows of `compare`.

    If a barrier is missing, a GPU may still give the right result. A kernel that is right on a GPU
    is therefore also checked without it, in the emulator or Numba's simulator.

    Args:
        on_case: called with each case's id before it runs.
        seconds: time limit of one case.

    Raises:
        UsageError: there is no such file.
    """
    path = _written(exercise, folder)
    result = _judged(exercise, path, on_case, seconds)
    if result["outcome"] == "right" and result["forgiving"]:
        strict = _judged(exercise, path, on_case, seconds, {"CUDA_VISIBLE_DEVICES": ""})
        if strict["outcome"] in ("wrong", "error"):
            result = {
                **strict,
                "why": f"correct on this GPU only by chance; without a GPU {strict['why']}",
            }
        elif strict["outcome"] == "right":
            result |= {name: strict[name] for name in ("unchecked", "counts", "counted_on")}
    kept = _state(folder)
    kept[exercise.id] = {
        **kept.get(exercise.id, {}),
        "hash": _hash(path),
        "outcome": result["outcome"],
        "why": result["why"],
    }
    _keep(folder, kept)
    return result


def hint(exercise: Exercise, folder: Path) -> tuple[int, str]:
    """The number and the text of the next hint; the last one again once all are given."""
    _written(exercise, folder)
    kept = _state(folder)
    entry = kept.setdefault(exercise.id, {})
    entry["hints"] = min(entry.get("hints", 0) + 1, len(exercise.hints))
    _keep(folder, kept)
    return entry["hints"], exercise.hints[entry["hints"] - 1]


def solution(exercise: Exercise, folder: Path) -> list[str]:
    """A unified diff to the rung from the learner's file or, if there is none, from the exercise's
    initial file."""
    of = files.source(exercise)
    path = folder / of.file_name
    mine = path.read_text(encoding="utf-8") if path.is_file() else files.text(of)
    name = str(path) if path.is_file() else f"{of.file_name} as written"
    real = files.text(of, solved=True)
    return list(
        difflib.unified_diff(
            mine.splitlines(), real.splitlines(), name, f"the rung {exercise.rung}", lineterm=""
        )
    )


def _judged(
    exercise: Exercise,
    path: Path,
    on_case,
    seconds: float,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    request = json.dumps({"name": exercise.id, "path": str(path.resolve())})
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.check"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {}), "PYTHONPATH": _python_path()},
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(request.encode())
    process.stdin.close()
    said, errors, case, result = b"", b"", "", None
    streams, end = [process.stdout, process.stderr], time.monotonic() + seconds
    try:
        while streams and time.monotonic() < end:
            ready, _, _ = select.select(streams, [], [], max(0.0, end - time.monotonic()))
            for stream in ready:
                part = os.read(stream.fileno(), 1 << 16)
                if not part:
                    streams.remove(stream)
                elif stream is process.stderr:
                    errors = (errors + part)[-8000:]
                else:
                    *lines, said = (said + part).split(b"\n")
                    for line in map(json.loads, lines):
                        if "case" in line and len(line) == 1:
                            case, end = line["case"], time.monotonic() + seconds
                            on_case(case)
                        elif "no space" in line:
                            raise NoSpace(line["no space"])
                        else:
                            result = line
        if result is not None:
            return result
        if streams:
            why = f"it was still running after {seconds:.0f} s: an endless loop, or a barrier that "
            return _ended(f"{why}not all threads reach", case)
        code = process.wait()
        last = _said(errors.decode(errors="replace"))
        if code < 0:
            last = f"killed by {signal.Signals(-code).name}: an out-of-bounds access?"
        return _ended(last, case)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        process.stderr.close()


def _said(errors: str) -> str:
    """What a process's errors say: an exception's own line, not the end of a compiler's log."""
    lines = errors.strip().splitlines() or ["no message"]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (raised or lines)[-1]


def _ended(why: str, case: str) -> dict[str, Any]:
    return {
        "outcome": "error", "why": why, "case": case, "where": "", "findings": [], "clues": [],
        "passed": 0, "unchecked": "", "counts": [], "counted_on": "",
    }  # fmt: skip


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(PACKAGE.parent), *([before] if before else [])])


def _written(exercise: Exercise, folder: Path) -> Path:
    path = folder / files.source(exercise).file_name
    if not path.is_file():
        raise UsageError(f"NAME: there is no {path} yet; kernelwright exercise {exercise.id}")
    return path


def _state(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / STATE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _keep(folder: Path, state: dict[str, dict[str, Any]]) -> None:
    (folder / STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def document() -> str:
    """The page of the exercises with an up-to-date list."""
    rows = ["| | exercise | language | topic |", "| ---: | --- | --- | --- |"]
    for i, e in enumerate(exercises(), 1):
        backend = files.source(e).rung.backend
        rows.append(f"| {i} | `{e.id}` | {LANGUAGES[backend]} | {e.lesson} |")
    table = "\n".join(rows) + "\n"
    return MARKED.sub(lambda m: m[1] + table + m[3], DOC.read_text(encoding="utf-8"))


LANGUAGES = {"numba": "Python (Numba)", "triton": "Triton", "cuda": "CUDA C++"}


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
