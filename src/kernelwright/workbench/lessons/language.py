"""The languages of the lessons and the quiz. The words of tables, pictures and prompts are those of
the English source; zh.toml has them in Chinese, with "#" in place of each number."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import replace
from functools import cache
from typing import TypeVar

from kernelwright.support.errors import UsageError

from .lesson import ENGLISH, FOLDER, LANGUAGES
from .tables import Cell, Picture, Table

BEHIND = "This text is of an earlier version of the lesson; the English one is current."
WIDTH = 62  # Latin letters in a line of a drawing's notes
_WIDE = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
#: What stays on one line: a Latin word, or a Chinese character with the punctuation after it.
_PARTS = re.compile(
    r"(?:[^\s\u3000-\u9fff\uff00-\uffef]+|[\u3000-\u9fff\uff00-\uffef])[，。：；、）\s]*"
)
_NUMBER = re.compile(r"(?<![\w^.])\d+(?:[.,]\d+)*")
_T = TypeVar("_T", bound=Cell)


def chosen(asked: str | None) -> str:
    """The language of an option; without it, that of the locale, or English.

    Raises:
        UsageError: there is no such language.
    """
    if asked is not None:
        if asked not in LANGUAGES:
            raise UsageError(f"--lang: {asked} is none of {', '.join(LANGUAGES)}")
        return asked
    names = (os.environ.get(n) for n in ("LC_ALL", "LC_MESSAGES", "LANG"))
    name = next(filter(None, names), "")
    return next((x for x in LANGUAGES if re.match(rf"{x}(_|\.|$)", name)), ENGLISH)


@cache
def _words(lang: str) -> dict[str, str]:
    path = FOLDER / f"{lang}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))["words"] if path.exists() else {}


def translate(words: str, lang: str) -> str:
    """Words in a language; names and formulas, which have no translation, as they are."""
    numbers = iter(_NUMBER.findall(words))
    translated = _words(lang).get(_NUMBER.sub("#", words))
    return words if translated is None else re.sub("#", lambda _: next(numbers), translated)


def cell(value: _T, lang: str) -> _T | str:
    return translate(value, lang) if isinstance(value, str) else value


def table(of: Table, lang: str) -> Table:
    """A table whose title, headings and words are in a language."""
    return replace(
        of,
        title=translate(of.title, lang),
        columns=tuple(translate(c, lang) for c in of.columns),
        rows=tuple(tuple(cell(c, lang) for c in row) for row in of.rows),
        source=translate(of.source, lang),
    )


def picture(of: Picture, lang: str) -> Picture:
    """A picture whose title, notes and labels are in a language."""
    return replace(
        of,
        title=translate(of.title, lang),
        notes=tuple(translate(n, lang) for n in of.notes),
        strips=tuple(
            replace(
                s,
                label=translate(s.label, lang),
                words=translate(s.words, lang),
                axes=s.axes and replace(s.axes, name=translate(s.axes.name, lang)),
            )
            for s in of.strips
        ),
    )


def lines(text: str) -> list[str]:
    """Lines of a note in a drawing. Chinese has no spaces at which the drawing could break them."""
    if not _WIDE.search(text):
        return [text]
    out = [""]
    for part in _PARTS.findall(text):
        if _width(out[-1] + part.rstrip()) > WIDTH:
            out.append("")
        out[-1] += part if out[-1] else part.lstrip()
    return out


def _width(text: str) -> int:
    """A Chinese character is as wide as two Latin letters."""
    return len(text) + len(_WIDE.findall(text))
