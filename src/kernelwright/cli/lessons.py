"""The command that runs lessons and the quiz."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.support.errors import GOOD, WRONG, UsageError

from .options import Json, Wide, printing, waiting

if TYPE_CHECKING:
    from .render.terminal import Output


def learn(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="LESSON",
            help="A lesson's name or number (default: list the lessons).",
            show_default=False,
        ),
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(help="Your answer to the next question of the lesson. Repeatable."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Also write the lesson's picture to a file."),
    ] = None,
    quiz: Annotated[
        bool, typer.Option("--quiz", help="Answer 60 questions, read from standard input.")
    ] = False,
    lang: Annotated[
        str | None,
        typer.Option(
            metavar="en|zh",
            help="English or Chinese (default: by the locale; JSON is in English).",
            show_default=False,
        ),
    ] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Learn CUDA in ten lessons, with measurements and questions.

    Needs no GPU: without one, the emulator counts what the kernels do, and times recorded on an
    H200 are shown. On a GPU, the kernels are timed too. On a terminal, a lesson asks its questions;
    elsewhere, --answer gives the answers.

    Exit codes: 0 good, 1 an answer is wrong, 2 wrong usage, 3 there is no C++ compiler.

    \b
    Examples:
      kernelwright learn
      kernelwright learn global_memory
      kernelwright learn 3 --answer 12 --answer 5
      kernelwright learn 3 --picture sectors.svg
      kernelwright learn --quiz
      kernelwright learn global_memory --lang zh
      kernelwright learn --quiz --json | jq '.[].question'
    """
    if quiz and (name is not None or answer or picture):
        raise UsageError("--quiz: takes no lesson, --answer or --picture")
    if name is None and (answer or picture):
        raise UsageError("LESSON: name the lesson (see kernelwright learn)")
    with printing(as_json, wide) as out:
        from kernelwright.workbench.lessons import language
        from kernelwright.workbench.lessons import lesson as module

        # what a script reads does not depend on the locale
        lang = language.chosen(lang or (module.ENGLISH if as_json else None))
        if quiz:
            return _quiz(out, as_json, lang)

        if name is None:
            lessons = [module.read(n, lang) for n in module.NAMES]
            if as_json:
                out.emit([{"lesson": x.name, "title": x.title} for x in lessons])
            else:
                from .render import lessons as show

                out.print(show.listing(lessons, lang))
            return GOOD
        of = module.named(name, lang)
        if len(answer or ()) > len(of.questions):
            from kernelwright.support.words import counted

            raise UsageError(f"--answer: {of.name} has {counted(len(of.questions), 'question')}")
        return _lesson(out, of, answer or [], picture, as_json)


def _lesson(out: Output, of: Any, answers: list[str], picture: Path | None, as_json: bool) -> int:
    with waiting(f"running lesson {of.name}", out):
        from kernelwright.workbench.lessons import run as module
        from kernelwright.workbench.lessons.language import cell, translate
        from kernelwright.workbench.lessons.tables import shown

        from .render import lessons as show

        done = module.run(of)
    if picture is not None:
        try:
            picture.write_text(module.drawn(of, done.measured.picture), encoding="utf-8")
        except OSError as e:
            raise UsageError(f"--picture: {picture}: {e.strerror}") from None
    asks = not (answers or as_json) and out.is_terminal and sys.stdin.isatty()
    if not as_json and not answers:
        width = min(out.width, show.WIDEST) if out.is_terminal else None
        for i, page in enumerate(show.lesson(done, out)):
            if i and asks:
                asks = _turns(out, of.lang)
            for part in page:
                out.print(part, width=width)
    checked: list[bool] = []
    for i, q in enumerate(of.questions):
        if not as_json:
            out.print("", show.question(i + 1, q, of.lang), sep="\n")
        given = _answer(out, translate("your answer: ", of.lang), of.lang) if asks else None
        asks = given is not None
        if given is not None and not module.right(given, q, done.measured):
            given = _answer(out, translate("wrong; try once more: ", of.lang), of.lang) or given
        answers += [given] if given is not None else []
        if i < len(answers):
            checked.append(module.right(answers[i], q, done.measured))
            if not as_json:
                right = shown(cell(module.answer(q, done.measured), of.lang))
                out.print(show.answered(q, checked[-1], right, of.lang))
    if as_json:
        out.emit(show.document(done, checked))
    elif len(checked) < len(of.questions):
        out.print(show.how_to_answer(of))
    return GOOD if all(checked) else WRONG


def _turns(out: Output, lang: str) -> bool:
    """Wait until a reader asks for the next page; False at the end of standard input."""
    from kernelwright.workbench.lessons.language import translate

    try:
        out.input(translate("Enter for the next page: ", lang))
    except EOFError:
        return False
    return True


def _answer(out: Output, prompt: str, lang: str) -> str | None:
    """A line of standard input; None at its end. On a terminal, an empty line is no answer."""
    from kernelwright.workbench.lessons.language import translate

    try:
        while not (given := out.input(prompt)).strip() and sys.stdin.isatty():
            prompt = translate("an answer, or Ctrl-D to stop: ", lang)
        return given
    except EOFError:
        return None


def _quiz(out: Output, as_json: bool, lang: str) -> int:
    from kernelwright.workbench.lessons import quiz as module
    from kernelwright.workbench.lessons.language import translate

    from .render import lessons as show

    items = module.items(lang)
    if as_json:
        out.emit(items)
        return GOOD
    right, missed = 0, list[module.Item]()
    for i, of in enumerate(items, 1):
        out.print("", show.item(i, len(items), of, lang), sep="\n")
        given = _answer(out, translate("your answer: ", lang) if sys.stdin.isatty() else "", lang)
        if given is None:
            break
        if not given.strip():  # skipped
            continue
        if module.right(given, of):
            right += 1
        else:
            missed.append(of)
        out.print(show.item_answered(of, module.right(given, of), lang))
    out.print("", show.score(right, right + len(missed), missed, lang), sep="\n")
    return WRONG if missed else GOOD
