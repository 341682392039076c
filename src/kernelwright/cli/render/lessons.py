"""The output of `kernelwright learn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from kernelwright.workbench.lessons import run
from kernelwright.workbench.lessons.lesson import Code, Lesson, Question, Shown
from kernelwright.workbench.lessons.lesson import Text as Prose
from kernelwright.workbench.lessons.quiz import LETTERS, Item
from kernelwright.workbench.lessons.run import Run
from kernelwright.workbench.lessons.tables import Picture, Table, shown
from kernelwright.workbench.report.strips import Strip

from . import tables
from .tables import Column, Note
from .terminal import Output

WIDEST = 100  # columns of text
WRAPPED = 30  # characters of a cell that is wrapped
#: Colors that are legible on light and dark terminals.
COLOURS = "ansi_light"
THEME = Theme({"markdown.code": "cyan", "markdown.code_block": "default"})
BLOCKS = "·▁▂▃▄▅▆▇█"


def listing(lessons: Sequence[Lesson]) -> RenderableType:
    """The lessons in order."""
    table = tables.Table(Column("", right=True), Column("lesson"), Column("topic", 9, wraps=True))
    for of in lessons:
        table.add(str(of.number), Text(of.name, "bold"), of.title)
    return Group(table, Note(f"next: kernelwright learn {lessons[0].name}", "bold"))


def lesson(done: Run, out: Output) -> list[RenderableType]:
    """A lesson's steps, with the measurements."""
    of = done.lesson
    out.push_theme(THEME)
    parts: list[RenderableType] = [
        Text(f"Lesson {of.number}. {of.title}", "bold"),
        _prose(of.summary, out),
    ]
    for i, step in enumerate(of.steps, 1):
        parts += ["", Text(f"{i}. {step.title}", "bold cyan"), ""]
        for part in step.parts:
            parts += [_part(part, done, out), ""]
        parts.pop()
    for found in done.here:
        parts += ["", _table(found)]
    return parts


def _part(part: Prose | Code | Shown, done: Run, out: Output) -> RenderableType:
    if isinstance(part, Prose):
        return _prose(run.filled(part, done.measured), out)
    if isinstance(part, Code):
        head = Text(part.file, "dim")
        if not out.is_terminal:
            return Group(head, Text(part.code))
        language = "cpp" if part.language == "cuda" else part.language
        return Group(head, Syntax(part.code, language, theme=COLOURS, word_wrap=True))
    if part.table is None:
        return picture(done.measured.picture, out)
    return _table(done.measured.table(part.table))


def _prose(text: str, out: Output) -> RenderableType:
    return Markdown(text, code_theme=COLOURS) if out.is_terminal else Text(text)


def _table(found: Table) -> tables.Table:
    cells = [[shown(c).strip("`") for c in row] for row in found.rows]
    made = tables.Table(
        *(
            Column(name, wraps=True)
            if max(len(row[i]) for row in cells) > WRAPPED
            else Column(name, right=found.is_figures(i))
            for i, name in enumerate(found.columns)
        ),
        title=found.title,
        notes=[found.source],
    )
    for row in cells:
        made.add(*row)
    return made


def picture(found: Picture, out: Output) -> Group:
    """A picture in characters: each cell is one of eight block characters, by its height."""
    labels = max(len(s.label) for s in found.strips)
    words = max(len(s.words) for s in found.strips)
    room = max(16, min(64, min(out.width, WIDEST) - labels - words - 4))
    lines = [Text(found.title, "bold"), *(Text(n, "dim") for n in found.notes)]
    for s in found.strips:
        style = "blue" if s.kind == "load" else "yellow"
        lines.append(
            Text.assemble(
                s.label.ljust(labels), "  ", (_cells(s, room), style), "  ", (s.words, "dim")
            )
        )
    return Group(*lines)


def _cells(strip: Strip, room: int) -> str:
    """Cells as characters; several cells share one if there are more than `room`."""
    each = -(-len(strip.cells) // room)
    wide = max(1, room // len(strip.cells)) if each == 1 else 1
    text = ""
    for i in range(0, len(strip.cells), each):
        part = strip.cells[i : i + each]
        level = sum(part) / len(part) * 8
        text += (BLOCKS[max(1, round(level))] if level else BLOCKS[0]) * wide
    return text


def question(number: int, q: Question) -> Text:
    choices = f" ({', '.join(q.choices)})" if q.choices else ""
    return Text(f"Question {number}. {q.question}{choices}")


def answered(q: Question, right: bool, answer: str) -> Text:
    """The text about a checked answer."""
    head = ("correct", "bold green") if right else ("wrong; the answer is", "bold red")
    return Text.assemble(head, f": {answer}. {q.why}")


def how_to_answer(of: Lesson) -> Note:
    options = " ".join("--answer ..." for _ in of.questions)
    return Note(f"next: kernelwright learn {of.name} {options}", "bold")


def item(number: int, count: int, of: Item) -> Text:
    lines = [f"{number} of {count} ({of.topic}). {of.question}"]
    lines += [f"  {letter}  {choice}" for letter, choice in zip(LETTERS, of.choices, strict=False)]
    return Text("\n".join(lines))


def item_answered(of: Item, right: bool) -> Text:
    head = ("correct", "bold green") if right else ("wrong; the answer is", "bold red")
    return Text.assemble(head, f": {of.letter}, {of.answer}. {of.why}\n", (f"see {of.see}", "dim"))


def score(right: int, asked: int, missed: Sequence[Item]) -> Group:
    """The result of a quiz, and what to read or run."""
    lines: list[RenderableType] = [Text(f"{right} of {asked} correct", "bold")]
    see = dict.fromkeys(of.see for of in missed)
    if see:
        lines.append(Text("to read or run: " + "; ".join(see)))
    return Group(*lines)


def document(done: Run, checked: Sequence[bool]) -> dict[str, Any]:
    """A lesson's run as JSON."""
    of = done.lesson
    return {
        "lesson": of.name,
        "title": of.title,
        "tables": done.measured.tables,
        "here": done.here,
        "questions": [
            {"question": q.question, "answer": run.answer(q, done.measured), "why": q.why}
            for q in of.questions
        ],
        "checked": list(checked),
    }
