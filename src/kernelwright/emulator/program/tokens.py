"""Splits C++ text into tokens, without a preprocessor: macros are not expanded, and the text of a
macro's definition is split like any other."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*.*?\*/)+)
  | (?P<string>(?:u8|[uUL])?R"(?P<end>[^\s()\\]{0,16})\(.*?\)(?P=end)"
             | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<char>[uUL]?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-fA-F]|[\w.])*)
  | (?P<name>[A-Za-z_$][\w$]*)
  | (?P<mark>::|->|\#\#|.)
    """,
    re.S | re.X,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
OPENING = {b: a for a, b in CLOSING.items()}


class Token(NamedTuple):
    """A token: `kind` is string, char, number, name or mark."""

    kind: str
    text: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """The tokens of a text, without comments and white space."""
    result: list[Token] = []
    for m in _TOKEN.finditer(text):
        kind = m.lastgroup or ""
        if kind == "end":
            kind = "string"
        if kind != "space":
            result.append(Token(kind, m.group(), m.start(), m.end()))
    return result


def closing(all_: list[Token], at: int) -> int | None:
    """The index of the bracket that closes the one at `at`, or None."""
    open_: list[str] = []
    for i in range(at, len(all_)):
        text = all_[i].text
        if all_[i].kind != "mark":
            continue
        if text in CLOSING:
            open_.append(CLOSING[text])
        elif text in OPENING:
            if not open_ or open_.pop() != text:
                return None
            if not open_:
                return i
    return None


def opening(all_: list[Token], at: int) -> int | None:
    """The index of the bracket that the one at `at` closes, or None."""
    open_: list[str] = []
    for i in range(at, -1, -1):
        text = all_[i].text
        if all_[i].kind != "mark":
            continue
        if text in OPENING:
            open_.append(OPENING[text])
        elif text in CLOSING:
            if not open_ or open_.pop() != text:
                return None
            if not open_:
                return i
    return None


def angle_opening(all_: list[Token], at: int) -> int | None:
    """The index of the < of a template argument list that ends with the > at `at`, or None."""
    depth, i = 0, at
    while i >= 0:
        token = all_[i]
        if token.kind == "mark":
            if token.text in OPENING:
                before = opening(all_, i)
                if before is None:
                    return None
                i = before
            elif token.text == ">":
                depth += 1
            elif token.text == "<":
                depth -= 1
                if depth == 0:
                    return i
            elif token.text in "([{;":
                return None
        i -= 1
    return None


def split(all_: list[Token], first: int, last: int, mark: str) -> list[tuple[int, int]]:
    """The parts of all_[first:last] between marks outside brackets, as pairs of indices."""
    pieces: list[tuple[int, int]] = []
    start, i = first, first
    while i < last:
        token = all_[i]
        if token.kind == "mark" and token.text in CLOSING:
            end = closing(all_, i)
            i = last if end is None else end + 1
            continue
        if token.kind == "mark" and token.text == mark:
            pieces.append((start, i))
            start = i + 1
        i += 1
    pieces.append((start, last))
    return pieces


def text_of(text: str, all_: list[Token], first: int, last: int) -> str:
    """The text of all_[first:last] in the source, including comments and line breaks."""
    return text[all_[first].start : all_[last - 1].end] if first < last else ""
