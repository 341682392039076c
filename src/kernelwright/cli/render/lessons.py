"""The output of `kernelwright learn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from kernelwright.workbench.lessons import language, run
from kernelwright.workbench.lessons.language import translate
from kernelwright.workbench.lessons.lesson import ENGLISH, Code, Lesson, Question, Shown, Step
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


def listing(lessons: Sequence[Lesson], lang: str = ENGLISH) -> RenderableType:
    """The lessons in order."""
    heads = Column(translate("lesson", lang)), Column(translate("topic", lang), 9, wraps=True)
    table = tables.Table(Column("", right=True), *heads)
    for of in lessons:
        table.add(str(of.number), Text(of.name, "bold"), of.title)
    return Group(table, _next(lessons[0].name, lang))


def lesson(done: Run, out: Output) -> list[list[RenderableType]]:
    """A lesson's steps, with the measurements; each is a page."""
    of = done.lesson
    out.push_theme(THEME)
    first: list[RenderableType] = [
        Text(f"{translate(f'Lesson {of.number}.', of.lang)} {of.title}", "bold"),
        _prose(of.summary, out),
    ]
    if of.is_behind:
        first.append(Note(translate(language.BEHIND, of.lang)))
    pages = [_step(i, step, done, out) for i, step in enumerate(of.steps, 1)]
    pages[0][:0] = first
    for table in done.here:
        pages[-1] += ["", _table(language.table(table, of.lang))]
    return pages


def _step(number: int, step: Step, done: Run, out: Output) -> list[RenderableType]:
    page: list[RenderableType] = ["", Text(f"{number}. {step.title}", "bold cyan")]
    for part in step.parts:
        page += ["", _part(part, done, out)]
    return page


def _part(part: Prose | Code | Shown, done: Run, out: Output) -> RenderableType:
    lang = done.lesson.lang
    if isinstance(part, Prose):
        return _prose(run.filled(part, done.measured, lang), out)
    if isinstance(part, Code):
        head = Text(part.file, "dim")
        if not out.is_terminal:
            return Group(head, Text(part.code))
        lexer = "cpp" if part.language == "cuda" else part.language
        return Group(head, Syntax(part.code, lexer, theme=COLOURS, word_wrap=True))
    if part.table is None:
        return picture(language.picture(done.measured.picture, lang), out)
    return _table(language.table(done.measured.table(part.table), lang))


def _prose(text: str, out: Output) -> RenderableType:
    return Markdown(text, code_theme=COLOURS) if out.is_terminal else Text(text)


def _table(table: Table) -> tables.Table:
    cells = [[shown(c).strip("`") for c in row] for row in table.rows]
    rendered = tables.Table(
        *(
            Column(name, wraps=True)
            if max(len(row[i]) for row in cells) > WRAPPED
            else Column(name, right=table.is_figures(i))
            for i, name in enumerate(table.columns)
        ),
        title=table.title,
        notes=[table.source],
    )
    for row in cells:
        rendered.add(*row)
    return rendered


def picture(of: Picture, out: Output) -> Group:
    """A picture in characters: each cell is one of eight block characters, by its height."""
    labels = max(cell_len(s.label) for s in of.strips)
    words = max(cell_len(s.words) for s in of.strips)
    room = max(16, min(64, min(out.width, WIDEST) - labels - words - 4))
    lines = [Text(of.title, "bold"), *(Text(n, "dim") for n in of.notes)]
    for s in of.strips:
        style = "blue" if s.kind == "load" else "yellow"
        lines.append(
            Text.assemble(
                set_cell_size(s.label, labels),
                "  ",
                (_cells(s, room), style),
                "  ",
                (s.words, "dim"),
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


def question(number: int, q: Question, lang: str = ENGLISH) -> Text:
    choices = f" ({', '.join(q.choices)})" if q.choices else ""
    return Text(f"{translate(f'Question {number}. ', lang)}{q.question}{choices}")


def answered(q: Question, right: bool, answer: str, lang: str = ENGLISH) -> Text:
    """The text about a checked answer."""
    rest = translate(": {answer}. {why}", lang).format(answer=answer, why=q.why)
    return Text.assemble(_verdict(right, lang), rest)


def _verdict(right: bool, lang: str) -> tuple[str, str]:
    if right:
        return translate("correct", lang), "bold green"
    return translate("wrong; the answer is", lang), "bold red"


def how_to_answer(of: Lesson) -> Note:
    options = " ".join("--answer ..." for _ in of.questions)
    return _next(f"{of.name} {options}", of.lang)


def _next(arguments: str, lang: str) -> Note:
    return Note(f"{translate('next: ', lang)}kernelwright learn {arguments}", "bold")


def item(number: int, count: int, of: Item, lang: str = ENGLISH) -> Text:
    head = translate(f"{number} of {count} ({{topic}}). ", lang).format(topic=of.topic)
    lines = [head + of.question]
    lines += [f"  {letter}  {choice}" for letter, choice in zip(LETTERS, of.choices, strict=False)]
    return Text("\n".join(lines))


def item_answered(of: Item, right: bool, lang: str = ENGLISH) -> Text:
    see = f"{translate('see ', lang)}{of.see}"
    rest = translate(": {letter}, {answer}. {why}", lang)
    rest = rest.format(letter=of.letter, answer=of.answer, why=of.why)
    return Text.assemble(_verdict(right, lang), rest, "\n", (see, "dim"))


def score(right: int, asked: int, missed: Sequence[Item], lang: str = ENGLISH) -> Group:
    """The result of a quiz, and what to read or run."""
    lines: list[RenderableType] = [Text(translate(f"{right} of {asked} correct", lang), "bold")]
    see = dict.fromkeys(of.see for of in missed)
    if see:
        lines.append(Text(translate("to read or run: ", lang) + "; ".join(see)))
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
