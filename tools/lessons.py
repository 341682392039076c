"""Writes the lessons' pages and pictures into docs/lessons, from a run of each.

    python -m tools.lessons [NAME ...]
    python -m tools.lessons --check    # exit 1 where a page was made of another source

Needs a C++ compiler and no GPU: a page has what is the same on every machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from kernelwright.workbench.lessons import chapters, lesson, run
from kernelwright.workbench.lessons.lesson import Code, Lesson, Question, Shown, Text
from kernelwright.workbench.lessons.run import Run
from kernelwright.workbench.lessons.tables import RECORD, Table, shown

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "lessons"
MARK = re.compile(r"<!-- lesson (\w+) of ([0-9a-f]+) -->")


def digest(of: Lesson) -> str:
    """A hash of all files of a lesson."""
    files = sorted(p for p in of.folder.iterdir() if p.is_file())
    text = b"".join(p.name.encode() + b"\0" + p.read_bytes() for p in files)
    return hashlib.sha256(text).hexdigest()[:16]


def page(done: Run) -> str:
    """A lesson as a page of the site."""
    of = done.lesson
    parts = [
        f"# Lesson {of.number}. {of.title}",
        f"<!-- lesson {of.name} of {digest(of)} -->",
        of.summary,
        "`kernelwright learn "
        f"{of.name}` runs this lesson and checks your answers. The figures below are the same on "
        "every machine; where there is a GPU, the command also times the kernels on it. "
        "[All lessons](../lessons.md)",
    ]
    for step in of.steps:
        parts.append(f"## {step.title}")
        parts += [_part(part, done) for part in step.parts]
    parts.append("## Questions")
    parts += [_question(i, q, done) for i, q in enumerate(of.questions, 1)]
    return "\n\n".join(parts) + "\n"


def _part(part: Text | Code | Shown, done: Run) -> str:
    if isinstance(part, Text):
        return run.filled(part, done.measured)
    if isinstance(part, Code):
        return f"```{'cpp' if part.language == 'cuda' else part.language}\n{part.code}\n```"
    if part.table is None:
        name, title = done.lesson.name, done.measured.picture.title
        return f"![{title}]({name}.svg)"
    return table(done.measured.table(part.table))


def table(found: Table) -> str:
    """A table in Markdown under its title."""
    rows = ["| " + " | ".join(found.columns) + " |"]
    sides = [":" * found.is_figures(i) for i in range(len(found.columns))]
    rows.append("| " + " | ".join(f"---{side}" for side in sides) + " |")
    for row in found.rows:
        rows.append("| " + " | ".join(_cell(shown(c)) for c in row) + " |")
    mark = f"**{found.source}**" if found.source == RECORD else found.source
    return f"{found.title} ({mark}):\n\n" + "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _question(number: int, q: Question, done: Run) -> str:
    choices = f" ({', '.join(q.choices)})" if q.choices else ""
    answer = shown(run.answer(q, done.measured))
    return (
        f"{number}. {q.question}{choices}\n\n"
        f"<details><summary>Answer</summary>\n\n{answer}. {q.why}\n\n</details>"
    )


def write(name: str) -> None:
    """Run a lesson and write its page and picture."""
    done = run.run(lesson.read(name), timed=False)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.md").write_text(page(done), encoding="utf-8")
    drawing = run.drawn(done.lesson, done.measured.picture)
    (FOLDER / f"{name}.svg").write_text(drawing, encoding="utf-8")


def stale() -> list[str]:
    """Lessons whose page is missing or was made of other files."""
    found: list[str] = []
    for name in lesson.NAMES:
        path = FOLDER / f"{name}.md"
        mark = MARK.search(path.read_text(encoding="utf-8")) if path.exists() else None
        if mark is None or mark.groups() != (name, digest(lesson.read(name))):
            found.append(name)
    return found


def contents() -> str:
    """docs/lessons.md: the lessons, and what they and the exercises correspond to."""
    text = (FOLDER.parent / "lessons.md").read_text(encoding="utf-8")
    for name, made in (("lessons", listing()), ("chapters", chapters.markdown())):
        text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- /{name} -->",
            lambda _, n=name, m=made: f"<!-- {n} -->\n{m}\n<!-- /{n} -->",
            text,
            flags=re.S,
        )
    return text


def listing() -> str:
    rows = ["| | lesson | |", "| ---: | --- | --- |"]
    for name in lesson.NAMES:
        of = lesson.read(name)
        rows.append(f"| {of.number} | [{of.title}](lessons/{name}.md) | {of.summary} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        found = stale()
        for name in found:
            print(f"docs/lessons/{name}.md: made of other files")
        if found:
            sys.exit("python -m tools.lessons writes them")
        return
    for name in arguments or lesson.NAMES:
        write(lesson.named(name).name)
        print(f"docs/lessons/{name}.md", flush=True)
    (FOLDER.parent / "lessons.md").write_text(contents(), encoding="utf-8")


if __name__ == "__main__":
    # as on a machine without a GPU, and with the shipped records alone
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.pop("KW_RECORDS", None)
    main(sys.argv[1:])
