"""Removes the code that binds kernels to PyTorch from a file, because a program in the emulator
launches its kernels in another way: includes of PyTorch's headers, and functions, uses of macros
and modules that name its types."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tokens import Token, closing

HEADERS = ("torch/", "ATen/", "c10/", "pybind11/")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:torch|ATen|c10|pybind11)/[^\n]*', re.M)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.M)
_NAMES = re.compile(r"\b(?:torch|at|c10|py|pybind11)\s*::|\b(?:TORCH_|AT_|PYBIND11_)\w+|\bm\.def\b")
_SCOPES = ("namespace", "extern")


def spans(text: str, all_: list[Token]) -> Iterator[tuple[int, int]]:
    """The parts of a file that bind it to PyTorch, as positions in its text; none if it includes
    none of PyTorch's headers."""
    included = [m.span() for m in _INCLUDE.finditer(text)]
    if not included:
        return
    yield from included
    directives = [m.span() for m in _DIRECTIVE.finditer(text)]
    macros = _macros(text)
    code = [t for t in all_ if not any(a <= t.start < b for a, b in directives)]
    for first, last in _declarations(code, macros):
        start, end = code[first].start, code[last].end
        if _binds(text[start:end], macros):
            yield start, end


def _macros(text: str) -> set[str]:
    """Macros that name PyTorch's types, or other such macros."""
    macros: set[str] = set()
    for _ in range(3):
        macros |= {m[1] for m in _DEFINED.finditer(text) if _binds(m[2], macros)}
    return macros


def _binds(text: str, macros: set[str]) -> bool:
    return bool(_NAMES.search(text)) or any(n in macros for n in re.findall(r"\w+", text))


def _declarations(code: list[Token], macros: set[str]) -> Iterator[tuple[int, int]]:
    """The first and the last token of each declaration of a file, including those in namespaces."""
    first = at = 0
    while at < len(code):
        text = code[at].text
        scope = code[first].text in _SCOPES and text == "{"
        if scope or (text == "}" and at == first):  # the tokens inside, or those after it
            first = at = at + 1
            continue
        end = closing(code, at) if text in ("(", "{", "[") else at
        end = len(code) - 1 if end is None else end
        alone = text == "(" and at == first + 1 and code[first].text in macros
        body = text == "{" and not _goes_on(code, end)
        if alone or body or text == ";":
            yield first, end
            first = end + 1
        at = end + 1


def _goes_on(code: list[Token], end: int) -> bool:
    """Whether a declaration does not end with its braces: struct { } x; and T x = { };"""
    after = code[end + 1] if end + 1 < len(code) else None
    return after is not None and after.text in (";", ",", "=", ")")
