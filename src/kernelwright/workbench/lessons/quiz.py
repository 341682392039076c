"""The questions of `kernelwright learn --quiz`: data in quiz.toml, and their texts in Chinese in
quiz.zh.toml, where each names its English question by a hash. Choices that are not there are those
of quiz.toml, and a question that has changed since is asked in English."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from typing import Any

from .language import translate
from .lesson import ENGLISH, FOLDER

LETTERS = "abcd"


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes:
        choices: in the order in which they are shown.
        answer: the right choice.
        see: the explanation: a command, or "docs:" and the titles, in quotation marks, of a page
            of the documentation, which is not installed, and of its section.
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


def items(lang: str = ENGLISH) -> tuple[Item, ...]:
    """All questions, by topic."""
    by_topic: dict[str, list[dict[str, Any]]] = _read("quiz.toml")
    english = tuple(
        Item(topic, q["question"], tuple(q["choices"]), q["answer"], q["why"], q["see"])
        for topic, questions in by_topic.items()
        for q in questions
    )
    if lang == ENGLISH:
        return english
    texts: dict[str, dict[str, Any]] = {t["of"]: t for t in _read(f"quiz.{lang}.toml")["item"]}
    return tuple(
        _translated(of, texts[h], lang) if (h := digest(of)) in texts else of for of in english
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


def _translated(of: Item, text: dict[str, Any], lang: str) -> Item:
    choices = tuple(text.get("choices", of.choices))
    answer = choices[of.choices.index(of.answer)]
    return Item(translate(of.topic, lang), text["question"], choices, answer, text["why"], of.see)


def digest(of: Item) -> str:
    """A hash of an English question, which its translation states."""
    text = "\n".join((of.question, *of.choices, of.answer, of.why))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def untranslated(lang: str) -> list[str]:
    """The questions that are new, or have changed since they were translated."""
    return [of.question for of, t in zip(items(), items(lang), strict=True) if t == of]


def right(given: str, item: Item) -> bool:
    """Whether a given letter, or text of a choice, is the answer."""
    given = given.strip().casefold()
    return given in (item.letter, item.answer.casefold())
