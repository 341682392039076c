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
LINE = 33  # Chinese characters in a line of a picture's notes
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


def said(words: str, lang: str) -> str:
    """Words in a language; names and formulas, which have no translation, as they are."""
    numbers = iter(_NUMBER.findall(words))
    found = _words(lang).get(_NUMBER.sub("#", words))
    return words if found is None else re.sub("#", lambda _: next(numbers), found)


def cell(value: _T, lang: str) -> _T | str:
    return said(value, lang) if isinstance(value, str) else value


def table(of: Table, lang: str) -> Table:
    """A table whose title, headings and words are in a language."""
    return replace(
        of,
        title=said(of.title, lang),
        columns=tuple(said(c, lang) for c in of.columns),
        rows=tuple(tuple(cell(c, lang) for c in row) for row in of.rows),
        source=said(of.source, lang),
    )


def picture(of: Picture, lang: str) -> Picture:
    """A picture whose title, notes and labels are in a language. Chinese has no spaces at which
    lines may be broken, so each line is a note."""
    if lang == ENGLISH:
        return of
    notes = [said(n, lang) for n in of.notes]
    return replace(
        of,
        title=said(of.title, lang),
        notes=tuple(n[i : i + LINE] for n in notes for i in range(0, len(n), LINE)),
        strips=tuple(
            replace(s, label=said(s.label, lang), words=said(s.words, lang)) for s in of.strips
        ),
    )
