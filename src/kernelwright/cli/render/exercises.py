"""The output of `kernelwright exercise`; it always ends with the next command to type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.contract.exercise import Exercise
from kernelwright.support.words import counted
from kernelwright.workbench.compare.compare import Row
from kernelwright.workbench.exercise.exercise import LANGUAGES, Standing
from kernelwright.workbench.exercise.files import source
from kernelwright.workbench.records import metrics, records

from . import comparison
from .tables import Column, Note, Table

STYLES = {
    "right": "bold green",
    "compiled": "cyan",
    "wrong": "bold red",
    "error": "bold red",
    "unfinished": "yellow",
    "started": "yellow",
    "changed since it was right": "yellow",
    "not started": "dim",
}


def listing(standings: list[Standing], folder: Path) -> RenderableType:
    """The exercises in learning order, with the learner's progress."""
    table = Table(
        Column("", right=True),
        Column("exercise"),
        Column("language", 5),
        Column("status", 9),
        Column("task", 7, wraps=True),
    )
    for i, s in enumerate(standings, 1):
        e = s.exercise
        state = Text(_shown(s.state), STYLES[s.state])
        table.add(str(i), Text(e.id, "bold"), LANGUAGES[s.language], state, e.lesson)
    right = sum(s.state == "right" for s in standings)
    following = next((s for s in standings if s.state != "right"), None)
    lines = [Note(f"{right} of {len(standings)} solved; your files are in {folder.resolve()}")]
    if following is None:
        lines.append(_next("all solved; compare with the ladder: kernelwright list"))
    elif following.state == "not started":
        lines.append(_next(f"kernelwright exercise {following.exercise.id}"))
    else:
        lines.append(_next(f"edit {following.file}, then {_check(following.exercise)}"))
    return Group(table, *lines)


def written(e: Exercise, path: Path) -> RenderableType:
    """The file that was written, and the next step."""
    todo = ", ".join(t.function for t in e.tasks)
    return Group(
        Text.assemble((str(path), "bold"), f": {e.lesson}"),
        Text(f"the fault is in {todo}" if e.faulty else f"write {todo}"),
        _next(f"edit {path}, then {_check(e, path)}"),
        _stuck(e, path),
    )


def hint(e: Exercise, number: int, text: str) -> RenderableType:
    """One hint."""
    last = number == len(e.hints)
    after = "this was the last hint" if last else "run the same command for the next hint"
    return Group(Text(f"Hint {number} of {len(e.hints)}: {text}"), Note(after))


def checked(e: Exercise, path: Path, result: dict[str, Any], following: Exercise | None) -> Group:
    """The outcome of a check."""
    outcome = result["outcome"]
    head = Text.assemble((_shown(outcome), STYLES[outcome]), f"  {e.id}")
    lines: list[RenderableType] = [head]
    if outcome == "right":
        lines.append(Text(f"every check passes on {counted(result['passed'], 'input')}"))
        lines += _watched(result)
        lines += _counts(result, path)
        lines += _worth(e, result.get("timed", []))
        ahead = f"kernelwright exercise {following.id}" if following else "kernelwright list"
        lines.append(_next(f"kernelwright exercise {e.id} --solution, or {ahead}"))
        return Group(*lines)
    if outcome == "compiled":
        lines.append(Text(result["why"]))
        lines.append(_next(f"kernelwright exercise {e.id} --solution"))
        return Group(*lines)
    if result["case"]:
        passed = f"; {result['passed']} passed before it" if result["passed"] else ""
        lines.append(Text.assemble("on input ", (result["case"], "bold"), passed))
    lines.append(Text(result["why"]))
    if result["where"]:
        lines.append(Text(result["where"]))
    lines += [Text(finding, "red") for finding in result["findings"]]
    lines += _counts(result, path)
    lines += [Text(f"look at: {clue}", "yellow") for clue in result["clues"]]
    lines.append(_next(f"edit {path}, then {_check(e, path)}"))
    lines.append(_stuck(e, path))
    return Group(*lines)


def _watched(result: dict[str, Any]) -> list[RenderableType]:
    """The result of the emulator's checks."""
    if result["unchecked"]:
        return [Text(f"not checked for races: {result['unchecked']}", "dim")]
    return [Text("no race, out-of-bounds access, uninitialized read or divergent barrier")]


def _counts(result: dict[str, Any], path: Path) -> list[RenderableType]:
    """Each counter with its target and the line to improve."""
    lines: list[RenderableType] = []
    for c in result["counts"]:
        met = c["value"] <= c["most"]
        text = f"{c['value']:,.4g} {c['unit']} on {result['counted_on']}, at most {c['most']:g}"
        more = "" if met else f"; see {path.name}:{c['line']}"
        lines.append(
            Text.assemble(
                ("target met" if met else "target missed", "green" if met else "yellow"),
                f": {text}{more}",
            )
        )
    return lines


def solution(diff: list[str], e: Exercise) -> RenderableType:
    """A colored unified diff."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines = [Text(x, "bold" if x[:3] in ("---", "+++") else styles.get(x[:1], "")) for x in diff]
    if not diff:
        lines = [Text(f"your file is identical to the solution, {e.rung}")]
    return Group(*lines)


def _worth(e: Exercise, timed: list[dict[str, Any]]) -> list[RenderableType]:
    """The learner's and the rung's time on this GPU, or without a GPU the rung's on an H200."""
    if timed:
        stream = comparison.rows()
        rows = [comparison.row(stream, Row(**r)) for r in timed]
        return [Text("A is the solution, B is your kernel:"), *rows]
    of = source(e)
    lad, name = of.ladder, of.rung.name
    table = metrics.headline(
        lad, records.REFERENCE_MACHINE, records.load(records.REFERENCE_MACHINE, lad.name)
    )
    row = next((r for r in table.rows if r.name == name and r.timed), None) if table else None
    if table is None or row is None:
        return [Text("not timed: there is no GPU here", "dim")]
    over = f", {metrics.times(row.over_below)} over {row.below.rung}" if row.below else ""
    share = f", {metrics.percent(row.of_roof)} of the roof" if row.of_roof else ""
    return [
        Text(
            f"not timed: there is no GPU here. On {records.REFERENCE_MACHINE} the rung takes "
            f"{metrics.microseconds(row.cold)} on {table.case}{share}{over}",
            "dim",
        )
    ]


def _shown(outcome: str) -> str:
    return "correct" if outcome == "right" else outcome.replace("was right", "was correct")


def _check(e: Exercise, path: Path | None = None) -> str:
    return f"kernelwright exercise {e.id} --check{_into(path)}"


def _stuck(e: Exercise, path: Path) -> Note:
    command = f"kernelwright exercise {e.id}"
    return Note(f"stuck: {command} --hint{_into(path)}; {command} --solution{_into(path)}")


def _into(path: Path | None) -> str:
    return "" if path is None or path.parent == Path() else f" --into {path.parent}"


def _next(what: str) -> Note:
    return Note(f"next: {what}", "bold")
