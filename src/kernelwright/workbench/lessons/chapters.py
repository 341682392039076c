"""Lessons, exercises and ladders with the chapters, lectures and interview questions on the same
subject."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from . import lesson
from .language import translate
from .lesson import FOLDER


@dataclass(frozen=True)
class Subject:
    """A row of the table.

    Attributes:
        lessons: names of lessons.
        exercises: names of exercises.
        pages: operators' pages, as paths in src/kernelwright/ops.
        pmpp: chapters of "Programming Massively Parallel Processors", 4th edition.
        lectures: numbers of GPU MODE's lectures.
        interview: an interview question.
    """

    subject: str
    interview: str
    lessons: tuple[str, ...] = ()
    exercises: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    pmpp: tuple[int, ...] = ()
    lectures: tuple[int, ...] = ()


def subjects() -> tuple[Subject, ...]:
    rows: list[dict[str, Any]] = tomllib.loads(
        (FOLDER / "chapters.toml").read_text(encoding="utf-8")
    )["subject"]
    listed: list[Subject] = []
    for row in rows:
        lists = {k: tuple(v) for k, v in row.items() if isinstance(v, list)}
        listed.append(Subject(row["name"], row["interview"], **lists))
    return tuple(listed)


def markdown(lang: str = lesson.ENGLISH) -> str:
    """The table for the page of the lessons, in a language."""
    heads = ("subject", "here", "PMPP", "GPU MODE", "interview question")
    rows = ["| " + " | ".join(translate(h, lang) for h in heads) + " |"]
    rows.append("| --- | --- | --- | --- | --- |")
    ops = "../src/kernelwright/ops" if lang == lesson.ENGLISH else "../../src/kernelwright/ops"
    for s in subjects():
        here = [
            f"{translate('lesson', lang)} [{lesson.NUMBERS[n]}](lessons/{n}.md)" for n in s.lessons
        ]
        here += [f"`{n}`" for n in s.exercises]
        here += [f"[{p.split('/')[-1]}]({ops}/{p}/README.md)" for p in s.pages]
        subject, interview = translate(s.subject, lang), translate(s.interview, lang)
        cells = (subject, ", ".join(here), _list(s.pmpp), _list(s.lectures), interview)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
