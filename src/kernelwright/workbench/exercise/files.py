"""Writes a learner's file: a rung's source reduced to one kernel, with its body removed or a fault
planted in it.

The rungs contain no markers. Python functions are found with `ast`, those of a .cu file by matching
braces. Code to which the function does not refer by name (the other direction's kernel, the plan)
is omitted, and so is the rung's header, which explains the solution.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from kernelwright.contract import Ladder, Rung
from kernelwright.contract.exercise import Exercise, Task
from kernelwright.workbench.listing import rung_named

from . import practice
from .watched import COUNTERS

WIDTH = 96  # width of a comment's text


@dataclass(frozen=True)
class Source:
    """An exercise's rung, and the file that contains its functions."""

    exercise: Exercise
    ladder: Ladder
    rung: Rung
    path: Path

    @property
    def is_cuda(self) -> bool:
        return self.path.suffix == ".cu"

    @property
    def file_name(self) -> str:
        """The name of the learner's file."""
        return self.exercise.id.replace(".", "_") + self.path.suffix


def source(exercise: Exercise) -> Source:
    """The source of an exercise's rung.

    Raises:
        UnknownOperator, UnknownRung: the exercise names a rung that does not exist.
    """
    operator, _, name = exercise.rung.rpartition(".")
    own = next((x for x in practice.LADDERS if x.name == operator), None)
    ladder, rung = (own, own.rung(name)) if own else rung_named(exercise.rung)
    path = ladder.folder / rung.sources[0] if rung.sources else ladder.module_of(rung)
    return Source(exercise, ladder, rung, path)


def text(of: Source, *, solved: bool = False) -> str:
    """The learner's initial file or, if `solved`, the file with the real bodies."""
    whole = of.path.read_text(encoding="utf-8")
    head = _head(of)
    code = _cuda(of, whole, solved) if of.is_cuda else _python(of, whole, solved)
    return f"{head}\n{code}"


def unfinished(of: Source, theirs: str) -> str | None:
    """Why the file is unfinished: a function that still has its initial body or is missing; None if
    all are written. A file that does not parse counts as written; running it reports the error."""
    start = text(of)
    for task in of.exercise.tasks:
        if not re.search(rf"\b{task.function}\b", theirs):
            return f"{task.function} is no longer in the file"
        if not task.planted and _bare_body(of, theirs, task.function) == _bare_body(
            of, start, task.function
        ):
            return f"not done yet: {task.function} still has the body it came with"
    return None


def body(of: Source, whole: str, function: str) -> str | None:
    """The text of a function's body, or None if it cannot be found."""
    try:
        span = _span(of, whole, function)
    except SyntaxError:
        return None
    return None if span is None else whole[span[0] : span[1]]


def _bare_body(of: Source, whole: str, function: str) -> str | None:
    """A body without comments and layout."""
    bare = body(of, whole, function)
    if bare is None:
        return None
    comments = r"//[^\n]*|/\*.*?\*/" if of.is_cuda else r"#[^\n]*"
    return " ".join(re.sub(comments, " ", bare, flags=re.S).split())


def _head(of: Source) -> str:
    """The task, the launch and the target."""
    e = of.exercise
    do = "Find and repair the fault" if e.faulty else "Write the parts marked TODO"
    parts = [f"Exercise {e.id}: {e.lesson}.", f"Launch: {e.launch}."]
    targets = [f"at most {t.most:g} {COUNTERS[t.counter].unit}" for t in e.targets]
    if targets:
        parts.append(f"Target: {', '.join(targets)}.")
    lines = [line for part in parts for line in (*textwrap.wrap(part, WIDTH), "")]
    lines += [
        f"{do}, then: kernelwright exercise {e.id} --check",
        f"The next hint: kernelwright exercise {e.id} --hint",
    ]
    if of.is_cuda:
        return "".join(f"// {line}".rstrip() + "\n" for line in lines)
    return '"""' + "\n".join(lines) + '\n"""\n'


def _begun(whole_body: str, task: Task, indent: str, comment: str, end: str) -> str:
    """The body that an exercise starts from: the solution with a planted fault, or the given lines
    followed by a TODO."""
    if task.planted:
        for right, wrong in task.planted:
            assert whole_body.count(right) == 1, f"{task.function}: {right!r}"
            whole_body = whole_body.replace(right, wrong)
        return whole_body
    given = _given(whole_body, task).rstrip("\n")
    lines = [given] if given.strip() else []
    lines.append(f"{indent}{comment} TODO")
    return "\n".join([*lines, *([indent + end] if end else [])]) + "\n"


def _given(whole_body: str, task: Task) -> str:
    """The leading lines of a body that are kept."""
    if not task.given:
        return ""
    at = whole_body.find(task.given)
    assert at >= 0, f"{task.function}: its body does not contain {task.given!r}"
    end = whole_body.find("\n", at + len(task.given))
    return whole_body[: end + 1]


# Python


def _python(of: Source, whole: str, solved: bool) -> str:
    """Top-level statements to which the functions refer by name, and those that use the functions,
    in order."""
    tree = ast.parse(whole)
    lines = whole.splitlines(keepends=True)
    holding = [s for s in tree.body if {t.function for t in of.exercise.tasks} & _defined_in(s)]
    wanted = {id(s) for s in holding}
    names = {n for s in holding for n in _defines(s)}
    made_of = [s for s in tree.body if isinstance(s, ast.Assign) and _uses(s) & names]
    wanted |= {id(s) for s in made_of}
    used = {n for s in (*holding, *made_of) for n in _uses(s)}
    while True:
        more = [
            s for s in tree.body if id(s) not in wanted and not _is_import(s) and _defines(s) & used
        ]
        if not more:
            break
        wanted |= {id(s) for s in more}
        used |= {n for s in more for n in _uses(s)}
    parts: list[tuple[ast.stmt, str]] = []
    for s in tree.body:
        if _is_import(s):
            kept = _import(s, used, of.ladder.package)
            parts += [(s, kept)] if kept else []
        elif id(s) in wanted:
            parts.append((s, _statement(of, whole, lines, s, solved)))
    return _laid_out(parts)


def _laid_out(parts: list[tuple[ast.stmt, str]]) -> str:
    """Statements, with blank lines around functions."""
    out, before = "", None
    for s, part in parts:
        if before is not None:
            functions = isinstance(s, ast.FunctionDef) or isinstance(before, ast.FunctionDef)
            turn = _is_import(before) != _is_import(s)
            out += "\n\n" if functions else "\n" if turn else ""
        out += part.rstrip("\n") + "\n"
        before = s
    return out


def _statement(of: Source, whole: str, lines: list[str], s: ast.stmt, solved: bool) -> str:
    """A top-level statement with its comments and decorators; unless solved, without its bodies."""
    decorators = getattr(s, "decorator_list", [])
    first = min([s.lineno, *(d.lineno for d in decorators)]) - 1
    start = first
    while start and lines[start - 1].startswith("#"):
        start -= 1
    out = "".join(lines[start : s.end_lineno])
    if solved:
        return out
    for task in of.exercise.tasks:
        span = _span(of, whole, task.function)
        assert span
        old = whole[span[0] : span[1]]
        if task.function in _defined_in(s):
            indent = re.match(r"\s*", old)
            out = out.replace(old, _begun(old, task, indent[0] if indent else "", "#", "pass"))
    return out


def _import(s: ast.stmt, used: set[str], package: str) -> str:
    """An import reduced to the used names; a relative import gets its full name."""
    if isinstance(s, ast.ImportFrom):
        names = [a for a in s.names if (a.asname or a.name) in used]
        if not names:
            return ""
        module = f"{package}.{s.module}" if s.level == 1 else s.module
        return f"from {module} import {', '.join(ast.unparse(a) for a in names)}"
    assert isinstance(s, ast.Import)
    names = [a for a in s.names if (a.asname or a.name) in used]
    return f"import {', '.join(ast.unparse(a) for a in names)}" if names else ""


def _is_import(s: ast.stmt) -> bool:
    return isinstance(s, (ast.Import, ast.ImportFrom))


def _defines(s: ast.stmt) -> set[str]:
    if isinstance(s, ast.FunctionDef):
        return {s.name}
    if isinstance(s, ast.Assign):
        return {n.id for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return set()


def _defined_in(s: ast.stmt) -> set[str]:
    return {n.name for n in ast.walk(s) if isinstance(n, ast.FunctionDef)}


def _uses(s: ast.stmt) -> set[str]:
    """Names that a statement reads. The first part of a dotted name suffices, because
    `triton.language` is imported as `tl`."""
    return {n.id for n in ast.walk(s) if isinstance(n, ast.Name)}


def names_given(of: Source, theirs: str) -> list[str]:
    """The top-level names of a learner's Python file that replace the rung's."""
    tree = ast.parse(theirs)
    functions = {t.function for t in of.exercise.tasks}
    holding = {n for s in tree.body if functions & _defined_in(s) for n in _defines(s)}
    assigned = {n for s in tree.body if isinstance(s, ast.Assign) and _uses(s) & holding
            for n in _defines(s)}  # fmt: skip
    return sorted(holding | assigned)


def _span(of: Source, whole: str, function: str) -> tuple[int, int] | None:
    """Where a function's body starts and ends in a text, in whole lines."""
    if of.is_cuda:
        return _cuda_span(whole, function)
    lines = whole.splitlines(keepends=True)
    for node in ast.walk(ast.parse(whole)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            after = node.body[0].lineno - 1
            while lines[after - 1].lstrip().startswith("#"):  # comments belong to the body
                after -= 1
            end = node.end_lineno or 0
            return sum(map(len, lines[:after])), sum(map(len, lines[:end]))
    return None


# CUDA C++


def _cuda(of: Source, whole: str, solved: bool) -> str:
    """The top-level pieces of a .cu file to which the functions refer by name, in order. A function
    that only a removed body calls is removed too."""
    for task in () if solved else of.exercise.tasks:
        span = _cuda_span(whole, task.function)
        assert span, task.function
        begun = _begun(whole[span[0] : span[1]], task, "  ", "//", "")
        whole = whole[: span[0]] + begun + whole[span[1] :]
    pieces = _pieces(whole)[1:]  # without the file's header
    wanted, before = {t.function for t in of.exercise.tasks}, set[str]()
    while before != wanted:
        before = set(wanted)
        reached = " ".join(piece for name, piece in pieces if name in wanted)
        wanted |= {n for n, _ in pieces if n and re.search(rf"\b{n}\b", reached)}
    return "".join(p for name, p in pieces if name is None or name in wanted).strip("\n") + "\n"


def _pieces(whole: str) -> list[tuple[str | None, str]]:
    """(name of the function or None, text) of each top-level piece; the first is the header.
    Comments and blank lines belong to the piece after them."""
    lines = whole.splitlines(keepends=True)
    codes = _masked(whole).splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    pieces: list[tuple[str | None, str]] = [(None, "".join(lines[:start]))]
    piece, depth = "", 0
    for line, code in zip(lines[start:], codes[start:], strict=True):
        piece += line
        depth += code.count("{") - code.count("}")
        if depth == 0 and (code.rstrip().endswith(("}", ";")) or code.startswith("#")):
            pieces.append((_function(piece), piece))
            piece = ""
    return [*pieces, (_function(piece), piece)]


def _function(piece: str) -> str | None:
    code = re.sub(r"__launch_bounds__\s*\([^)]*\)|__align__\s*\([^)]*\)", " ", _masked(piece))
    head, brace, _ = code.partition("{")
    match = re.search(r"(\w+)\s*\(", head) if brace else None
    return match[1] if match else None


def _cuda_span(whole: str, function: str) -> tuple[int, int] | None:
    """Where a function's body starts and ends, between its braces; the end of the text if they do
    not match."""
    masked, at = _masked(whole), 0
    for name, piece in _pieces(whole):
        if name == function:
            head = re.compile(rf"\b{function}\s*\(").search(masked, at)
            assert head
            start = masked.find("{", matching(masked, head.end() - 1, "()"))
            end = matching(masked, start, "{}")
            start += 2 if whole[start + 1 : start + 2] == "\n" else 1
            return start, end
        at += len(piece)
    return None


def _masked(whole: str) -> str:
    """The text with comments replaced by blanks, which keeps all offsets."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), whole, flags=re.S)


def matching(masked: str, start: int, pair: str) -> int:
    """The position at which the bracket opened at `start` closes; the end of the text if it is not
    closed."""
    depth = 0
    for i in range(start, len(masked)):
        depth += (masked[i] == pair[0]) - (masked[i] == pair[1])
        if depth == 0:
            return i
    return len(masked)
