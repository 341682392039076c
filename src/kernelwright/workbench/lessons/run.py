"""Runs a lesson, fills in its text and checks answers."""

from __future__ import annotations

import importlib
import re
import textwrap
from dataclasses import dataclass
from typing import Protocol, cast

import torch

from kernelwright.machine import random_state
from kernelwright.workbench.report import strips

from . import language
from .lesson import CELL, ENGLISH, LANGUAGES, Lesson, Question, Text
from .tables import Cell, Measured, Picture, Table, shown

CLOSE = 0.01  # relative tolerance of a numeric answer
WIDTH = 100  # of a line of text


class Measurement(Protocol):
    """A lesson's measure.py."""

    def measure(self) -> Measured:
        """Counts and records, which are the same on every machine."""
        ...

    def here(self, device: torch.device) -> tuple[Table, ...]:
        """Times on this machine."""
        ...


@dataclass(frozen=True)
class Run:
    """A lesson's run: results that are the same on every machine, and times on this one."""

    lesson: Lesson
    measured: Measured
    here: tuple[Table, ...] = ()


@random_state.preserved()
def run(lesson: Lesson, timed: bool = True) -> Run:
    """Run a lesson.

    Args:
        timed: whether to time on this machine as well.

    Raises:
        ToolchainError: the emulator needs a C++ compiler, and there is none.
    """
    module = importlib.import_module(f"{__package__}.{lesson.name}.measure")
    measurement = cast(Measurement, module)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here = measurement.here(device) if timed else ()
    return Run(lesson, measurement.measure(), here)


def filled(text: Text, measured: Measured, lang: str = ENGLISH) -> str:
    """A text with the run's cells filled in; English paragraphs with cells are wrapped again."""
    return "\n\n".join(_filled(p, measured, lang) for p in text.text.split("\n\n"))


def _filled(paragraph: str, measured: Measured, lang: str) -> str:
    def cell(m: re.Match[str]) -> str:
        value = measured.table(m[1].strip()).cell(m[2].strip(), m[3].strip())
        return shown(language.cell(value, lang))

    done, count = CELL.subn(cell, paragraph)
    if lang != ENGLISH or not count or not re.match(r"\w|`|\*\*", done):
        return done
    return textwrap.fill(done, WIDTH, break_long_words=False, break_on_hyphens=False)


def answer(question: Question, measured: Measured) -> Cell:
    """The right answer, from the run."""
    table, row, column = question.cell
    return measured.table(table).cell(row, column)


def right(given: str, question: Question, measured: Measured) -> bool:
    """Whether an answer is right: the same words, or a number within 1%."""
    truth = answer(question, measured)
    given = given.strip().rstrip("%").replace(",", "")
    if isinstance(truth, str):
        names = {language.translate(truth, lang).casefold() for lang in LANGUAGES}
        return given.casefold() in names
    try:
        number = float(given)
    except ValueError:
        return False
    return abs(number - truth) <= CLOSE * abs(truth)


def drawn(lesson: Lesson, picture: Picture) -> str:
    """The picture as an SVG."""
    picture = language.picture(picture, lesson.lang)
    label = f"{picture.title} (lesson {lesson.number}, {lesson.name})"
    notes = [line for note in picture.notes for line in language.lines(note)]
    return strips.picture(picture.title, notes, picture.strips, label)
