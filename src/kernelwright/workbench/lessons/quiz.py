"""The questions of `kernelwright learn --quiz`: data in quiz.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from .lesson import FOLDER

LETTERS = "abcd"


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes:
        choices: in the order in which they are shown.
        answer: the right choice.
        see: the explanation: a page of docs/ or of an operator, with an anchor, or a command.
    """

    topic: str
    question: str
    choices: tuple[str, ...]
    answer: str
    why: str
    see: str

    @property
    def letter(self) -> str:
        return LETTERS[self.choices.index(self.answer)]


def items() -> tuple[Item, ...]:
    """All questions, by topic."""
    found: dict[str, list[dict[str, Any]]] = tomllib.loads(
        (FOLDER / "quiz.toml").read_text(encoding="utf-8")
    )
    return tuple(
        Item(topic, q["question"], tuple(q["choices"]), q["answer"], q["why"], q["see"])
        for topic, questions in found.items()
        for q in questions
    )


def right(given: str, item: Item) -> bool:
    """Whether a given letter, or text of a choice, is the answer."""
    given = given.strip().casefold()
    return given in (item.letter, item.answer.casefold())
