"""Whether kernels do more than write to memory: print, allocate, or read a clock."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .cuda_builtins import names_of
from .tokens import Token, closing, tokens

_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\r?\n|[^\n])*)", re.M)
_QUALIFIERS = names_of("qualifier")
_SIDE_EFFECTS = names_of("effect", "clock")
_CLOCKS = ("clock", "globaltimer")


def have_side_effects(texts: Iterable[str]) -> bool:
    """Whether a function for the device contains such a word, itself or by a macro."""
    all_ = list(texts)
    macros = {m[1]: set(re.findall(r"\w+", m[2])) for text in all_ for m in _MACRO.finditer(text)}
    qualifiers, words = _closed(_QUALIFIERS, macros), _closed(_SIDE_EFFECTS, macros)
    return any(
        _is_side_effect(token, words)
        for text in all_
        if any(q in text for q in qualifiers)
        for body in _bodies(tokens(text), qualifiers)
        for token in body
    )


def _closed(names: frozenset[str], macros: dict[str, set[str]]) -> set[str]:
    """The names, and the macros whose definitions contain one of them."""
    closed = set(names)
    while more := {name for name, words in macros.items() if name not in closed and words & closed}:
        closed |= more
    return closed


def _bodies(all_: list[Token], qualifiers: set[str]) -> Iterable[list[Token]]:
    for i, token in enumerate(all_):
        if token.text in qualifiers:
            first = _body(all_, i + 1)
            last = closing(all_, first) if first is not None else None
            if first is not None:
                yield all_[first : len(all_) if last is None else last]


def _body(all_: list[Token], at: int) -> int | None:
    """The bracket that opens the function declared at `at`; None if it is not defined there."""
    while at < len(all_):
        text = all_[at].text
        if text == "{":
            return at
        if text == ";" or (text == "=" and all_[at - 1].text != "operator"):
            return None
        end = closing(all_, at) if text == "(" else None
        at = (at if end is None else end) + 1
    return None


def _is_side_effect(token: Token, words: set[str]) -> bool:
    if token.kind == "string":
        return any(clock in token.text for clock in _CLOCKS)
    return token.kind == "name" and token.text in words
