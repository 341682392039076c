"""CUDA C++ in a form that is equal for texts that compile to the same code: tokens without layout,
comments and messages of `static_assert`, and with local names numbered.

A name is numbered from its declaration to the end of its scope. Two functions with equal forms
differ by a renaming in which no two names that are visible at one place become equal, and every
name that is declared elsewhere stays. This holds whichever declarations are recognised: a variable
whose declaration is not keeps its name. So only the certain ones are: parameters, and statements
that begin with a type and a name. These names are kept:

- members and qualified names, and those in preprocessor directives;
- those that begin with an underscore or have no lower-case letter, which may be macros of a header;
- shared, static and extern variables, whose symbols the machine code may have;
- all of a function that uses a macro of these files, `assert` or another of `OPAQUE`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from . import includes


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TOKEN = re.compile(
    rf"\n#[^\n]*\n|{includes.LITERAL}|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|'?[\w.])*"
    r"|\+\+|--|->|::|<<|>>|&&|\|\||[-+*/%&|^!=<>]=|\.\.\.|\S",
    re.S,
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_LOCAL = re.compile(r"(?!_)\w*[a-z]\w*")
_CLOSING = {")": "(", "]": "[", "}": "{"}

_BUILTIN = _set("auto bool char double float int long short signed unsigned void")
_QUALIFIERS = _set("const constexpr typename volatile")
_MODIFIERS = _set("* & && const __restrict__")
_NO_TYPE = _set(
    "__asm__ __constant__ __device__ __shared__ alignas asm break case catch class continue "
    "co_await co_return co_yield default delete do else enum explicit extern false for friend "
    "goto if inline namespace new nullptr operator private protected public register requires "
    "return sizeof static static_assert struct switch template this thread_local throw true try "
    "typedef union using while and bitand bitor compl not or xor"
)
_KEYWORDS = _BUILTIN | _QUALIFIERS | _NO_TYPE
#: What makes a function keep its names: what may refer to a name by its text, and further scopes.
OPAQUE = _set("assert catch class enum goto struct union")


def codes(paths: Iterable[Path]) -> list[str]:
    """The forms of the files of one source, in their order."""
    plain = [includes.code(path) for path in paths]
    macros = frozenset(name for code in plain for name in _macros(code))
    words = frozenset(word for code in plain for word in _words(code))
    return [_form(code, macros & _names(code), words & _names(code)) for code in plain]


@cache
def _tokens(code: str) -> tuple[str, ...]:
    return tuple(m[0] for m in _TOKEN.finditer(code))


@cache
def _names(code: str) -> frozenset[str]:
    return frozenset(_NAME.findall(code))


@cache
def _macros(code: str) -> frozenset[str]:
    return frozenset(re.findall(r"\n# *define +(\w+)", code))


@cache
def _words(code: str) -> frozenset[str]:
    """Names in directives, except those of headers."""
    lines = re.findall(r"\n#(?! *include)[^\n]*", code)
    return frozenset(name for line in lines for name in _NAME.findall(line))


@cache  # sources share headers
def _form(code: str, macros: frozenset[str], words: frozenset[str]) -> str:
    tokens = list(_tokens(code))
    file = _File.of(tokens)
    if file is not None:
        for opening, body in file.functions():
            inside = range(opening, file.closing[body])
            if not any(_opaque(tokens[i], macros) for i in inside):
                _number(file, opening, body, words)
        tokens = _without_messages(file)
    return " ".join(tokens)


def _opaque(token: str, macros: frozenset[str]) -> bool:
    directive = token[0] == "\n" and not token.startswith("\n#pragma ")
    return directive or token in OPAQUE or token in macros or (token[0] == '"' and "%[" in token)


def _without_messages(file: _File) -> list[str]:
    """The tokens without the messages of static_assert."""
    dropped: set[int] = set()
    for i, token in enumerate(file.tokens):
        if token == "static_assert":
            end = first = file.closing.get(i + 1, i)
            while file.tokens[first - 1][0] == '"':
                first -= 1
            if first < end and file.tokens[first - 1] == ",":
                dropped.update(range(first - 1, end))
    return [token for i, token in enumerate(file.tokens) if i not in dropped]


@dataclass
class _File:
    """Tokens, the closing bracket of each opening one and the reverse, and the innermost open
    bracket at each token."""

    tokens: list[str]
    closing: dict[int, int] = field(default_factory=dict)
    opening: dict[int, int] = field(default_factory=dict)
    within: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, tokens: list[str]) -> _File | None:
        """None where brackets do not match, such as those of two branches of an #if."""
        file, opened = cls(tokens), [-1]
        for i, token in enumerate(tokens):
            if token in _CLOSING:
                start = opened.pop()
                if start < 0 or tokens[start] != _CLOSING[token]:
                    return None
                file.closing[start], file.opening[i] = i, start
            file.within.append(opened[-1])
            if token in _CLOSING.values():
                opened.append(i)
        return file if opened == [-1] else None

    def functions(self) -> Iterator[tuple[int, int]]:
        """The opening brackets of each outermost function's parameters and body."""
        i = 0
        while i < len(self.tokens):
            at = self.parameters_of(i)
            if at is None:
                i += 1
            else:
                yield at, i
                i = self.closing[i]

    def parameters_of(self, i: int) -> int | None:
        """The round bracket before a block, such as that of a function's parameters."""
        if self.tokens[i] != "{":
            return None
        while i and self.tokens[i - 1] in ("const", "mutable", "noexcept", "override"):
            i -= 1
        if not i or self.tokens[i - 1] != ")":
            return None
        at = self.opening[i - 1]
        before = self.tokens[at - 1] if at else ""
        named = _NAME.fullmatch(before) and before not in ("decltype", "return", "sizeof")
        return at if named or before in ("]", ")") else None  # `(T){...}` is an initializer

    def is_block(self, i: int) -> bool:
        """Whether a bracket is that of a block, not of an initializer."""
        while i >= 0 and self.tokens[i] == "{":
            if self.parameters_of(i) is not None:
                return True
            before = self.tokens[i - 1]
            if before != "{":
                return before in (";", "}", "else", "do") or before[0] == "\n"
            i -= 1
        return False

    def end_of_statement(self, i: int) -> int:
        """The place after the statement that begins at a token."""
        while self.tokens[i][0] == "\n" or self.tokens[i : i + 2] == ["[", "["]:
            i = self.closing.get(i, i) + 1  # a pragma or an attribute
        first = self.tokens[i]
        if first == "{":
            return self.closing[i] + 1
        if first in ("for", "if", "switch", "while"):
            while self.tokens[i] != "(":
                i += 1
            end = self.end_of_statement(self.closing[i] + 1)
            if first == "if" and self.tokens[end] == "else":
                end = self.end_of_statement(end + 1)
            return end
        if first == "do":
            i = self.end_of_statement(i + 1)
        while self.tokens[i] not in (";", "}"):
            i = self.closing.get(i, i) + 1
        return i + 1

    def type_end(self, i: int) -> tuple[int, bool, bool] | None:
        """The place after a type, whether it can be nothing else than a type, and whether it is
        one of pointers or references; None where no type begins."""
        start, certain, builtin = i, False, False
        while self.tokens[i] in _BUILTIN or self.tokens[i] in _QUALIFIERS:
            certain, builtin = True, builtin or self.tokens[i] in _BUILTIN
            i += 1
        if not builtin:
            while True:
                i += self.tokens[i] == "::"
                if not self.is_name(i):
                    return None
                i += 1
                if self.tokens[i] == "<":
                    end = self.angle_end(i)
                    if end is None:
                        return None
                    i = end
                if self.tokens[i] != "::":
                    break
        indirect = False
        while self.tokens[i] in _MODIFIERS:
            indirect = indirect or self.tokens[i] != "const"
            i += 1
        return (i, certain, indirect) if i > start else None

    def is_name(self, i: int) -> bool:
        return bool(_NAME.match(self.tokens[i])) and self.tokens[i] not in _KEYWORDS

    def angle_end(self, i: int) -> int | None:
        """The place after template arguments; None where these may be none."""
        depth = 0
        while True:
            token = self.tokens[i]
            depth += {"<": 1, ">": -1, ">>": -2}.get(token, 0)
            if depth <= 0:
                return i + 1 if depth == 0 else None
            if token in (";", "{", "}", ")", "]", "&&", "||", "?") or token[0] == "\n":
                return None
            i = self.closing.get(i, i) + 1


@dataclass(frozen=True)
class _Local:
    """A declared name: its place, where its scope begins, and where that ends."""

    at: int
    begin: int
    end: int


def _number(file: _File, opening: int, body: int, words: frozenset[str]) -> None:
    """Replace the local names of a function by numbers."""
    known: dict[str, list[_Local]] = defaultdict(list)
    for local in sorted(_locals(file, opening, body), key=lambda x: x.at):
        known[file.tokens[local.at]].append(local)
    numbers: dict[_Local, int] = {}
    renamed: list[tuple[int, str]] = []
    for i in range(opening, file.closing[body]):
        token = file.tokens[i]
        if token not in known or token in words or not _LOCAL.fullmatch(token):
            continue
        if file.tokens[i - 1] in (".", "->", "::", "template") or file.tokens[i + 1] == "::":
            continue
        for local in reversed(known[token]):
            if i == local.at or local.begin <= i < local.end:
                renamed.append((i, f"${numbers.setdefault(local, len(numbers))}"))
                break
    for i, number in renamed:
        file.tokens[i] = number


def _locals(file: _File, opening: int, body: int) -> Iterator[_Local]:
    """The certain declarations of a function, those of its lambdas included."""
    tokens, closing = file.tokens, file.closing
    yield from _parameters(file, opening, closing[body])
    for i in range(body + 1, closing[body]):
        before = tokens[i - 1]
        if tokens[i] == "{":
            group = file.parameters_of(i)
            if group is not None and tokens[group - 1] == "]":
                yield from _parameters(file, group, closing[i])
        elif before == "(" and tokens[i - 2] == "for":
            yield from _declared(file, i, file.end_of_statement(closing[i - 1] + 1), (":",))
        elif file.is_block(file.within[i]) and (before in (";", "{", "}") or before[0] == "\n"):
            yield from _declared(file, i, closing[file.within[i]])


def _parameters(file: _File, opening: int, end: int) -> Iterator[_Local]:
    i = opening + 1
    while i < file.closing[opening]:
        declarator = file.type_end(i)
        if declarator is None:
            return
        at = declarator[0]
        if file.is_name(at) and file.tokens[at + 1] in (",", ")", "=", "["):
            i = _after_bounds(file, at)
            yield _Local(at, i, end)
        i = _next(file, i if i > at else at)
        if i is None:
            return


def _declared(file: _File, i: int, end: int, further: tuple[str, ...] = ()) -> Iterator[_Local]:
    """The names that a statement declares."""
    declarator = file.type_end(i)
    if declarator is None:
        return
    at, certain, indirect = declarator
    follow = ("=", *further) if indirect and not certain else ("=", "{", ";", "[", *further)
    templated = ">" in file.tokens[i:at] or ">>" in file.tokens[i:at]
    if certain or not (indirect or templated):
        follow += (",",)
    while file.is_name(at) and file.tokens[at + 1] in follow:
        begin = _after_bounds(file, at)
        if file.tokens[begin] == ":":  # what a loop goes through is not in the scope
            yield _Local(at, file.closing[i - 1], end)
            return
        yield _Local(at, begin, end)
        following = _next(file, begin)
        if following is None:
            return
        at = following
        while file.tokens[at] in _MODIFIERS:
            at += 1


def _after_bounds(file: _File, at: int) -> int:
    """The place after a name and the bounds of its array, which are not in its scope."""
    at += 1
    while file.tokens[at] == "[":
        at = file.closing[at] + 1
    return at


def _next(file: _File, i: int) -> int | None:
    """The place after the next comma that separates declarations; None where there is none, or it
    may be a comma of template arguments."""
    while file.tokens[i] != ",":
        if file.tokens[i] in (";", ")", "}", "<", ":"):
            return None
        i = file.closing.get(i, i) + 1
    return i + 1
