"""The functions that a program's files define outside of classes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..tokens import Token, angle_opening, closing, opening, split, tokens
from .preprocessor import Choice, resolved

_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.M)
_NOT_OF_THE_TYPE = frozenset(
    ["__device__", "__host__", "__forceinline__", "inline", "static", "constexpr", "__noinline__",
     "__inline__", "extern", "const"]
)  # fmt: skip
_ENDS = (";", "}", "{", ":")


@dataclass(frozen=True)
class TemplateParameter:
    name: str
    type_: bool
    kind: str  # of a value: its type
    default: str


@dataclass(frozen=True)
class Parameter:
    type_: tuple[str, ...]  # with the marks of pointers and references
    name: str
    default: str


@dataclass(frozen=True)
class Definition:
    """A function. `body`: its tokens from { to }. `source`: the text of the body, if it has
    conditions of the preprocessor. `why`: why it cannot be inlined.
    `line_text`: the text of the line in which it begins."""

    name: str
    template: tuple[TemplateParameter, ...]
    returns: tuple[Token, ...]
    parameters: tuple[Parameter, ...]
    body: list[Token]
    line: int
    line_text: str
    line_of: Callable[[int], int]
    why: str
    source: str = ""
    device: bool = False  # kernels may call it, as a qualifier says

    def decided(self, choice: Choice) -> Definition:
        """The function with its conditions of the preprocessor decided.

        Raises:
            Undecided: the choice does not decide one of them.
        """
        if not self.source:
            return self
        at = self.body[0].start
        body = code_of(resolved(self.source, choice))[0]
        return replace(self, body=[t._replace(start=t.start + at, end=t.end + at) for t in body])


def code_of(text: str) -> tuple[list[Token], list[tuple[int, int]]]:
    """The tokens outside of directives, and the spans of the directives."""
    directives = [m.span() for m in _DIRECTIVE.finditer(text)]
    starts = [a for a, _ in directives]
    all_: list[Token] = []
    for t in tokens(text):
        i = bisect_right(starts, t.start) - 1
        if i < 0 or t.start >= directives[i][1]:
            all_.append(t)
    return all_, directives


def line_numbers(text: str) -> Callable[[int], int]:
    """A function from offsets to line numbers. After a comment /*@12*/, lines count from 12."""
    places, numbers, now = [0], [1], 1
    for m in re.finditer(r"\n|/\*@(\d+)\*/", text):
        now = int(m[1]) if m[1] else now + 1
        places.append(m.end())
        numbers.append(now)
    return lambda at: numbers[bisect_right(places, at) - 1]


def definitions(
    text: str, function: Callable[[list[Token], int], tuple[str, int]]
) -> Iterator[Definition]:
    """The definitions of a file. `function`: maps a token { to the name of the function whose body
    it opens and the token that opens the parameters."""
    all_, directives = code_of(text)
    line_of, file_lines = line_numbers(text), text.split("\n")
    scopes: list[bool] = []  # whether each may hold functions
    i = 0
    while i < len(all_):
        t = all_[i]
        if t.kind == "mark" and t.text == "}" and scopes:
            scopes.pop()
        elif t.kind == "mark" and t.text == "{":
            name, start = function(all_, i) if i else ("", 0)
            end = closing(all_, i)
            if end is None:
                return
            if name and name != "operator":
                inside = [text[a:b] for a, b in directives if all_[i].start < a < all_[end].start]
                divided = any(not re.match(r"[ \t]*#[ \t]*pragma\b", d) for d in inside)
                source = text[all_[i].start : all_[end].end] if divided else ""
                why = "" if all(scopes) else "an object"
                line = line_of(all_[start].start)
                body = all_[i : end + 1]
                one = _definition(all_, name, start, body, line, file_lines[line - 1], line_of, why)
                yield replace(one, source=source)
                i = end + 1
                continue
            scopes.append(_is_namespace(all_, i))
        i += 1


def _is_namespace(all_: list[Token], at: int) -> bool:
    before = [t.text for t in all_[max(0, at - 6) : at]]
    while before and before[-1] not in (";", "}", "{"):
        if before.pop() in ("namespace", "extern"):
            return True
    return False


def _definition(
    all_: list[Token],
    name: str,
    start: int,
    body: list[Token],
    line: int,
    line_text: str,
    line_of: Callable[[int], int],
    why: str,
) -> Definition:
    end = closing(all_, start) or start
    parameters = tuple(parameter(all_[a:b]) for a, b in split(all_, start + 1, end, ",") if a < b)
    first = start - 1
    while first > 0 and all_[first - 1].text not in _ENDS:
        if all_[first - 1].text == ")":  # of an attribute
            before = opening(all_, first - 1)
            first = before if before is not None else first
        if all_[first - 1].text == ">" and (before := angle_opening(all_, first - 1)):
            first = before
        first -= 1
    head = all_[first : start - 1]
    template: tuple[TemplateParameter, ...] = ()
    if head and head[0].text == "template":
        close = next((k for k in range(len(head)) if _closes(head, k)), None)
        if close is None:
            why = "a template that is not understood"
        else:
            template = tuple(_template(head[a:b]) for a, b in split(head, 2, close, ",") if a < b)
            head = head[close + 1 :]
    if any("." in p.type_ for p in parameters):
        why = "a list of parameters"
    device = any(t.text in ("__device__", "__global__") for t in head)
    returns = tuple(t for t in head if t.text not in _NOT_OF_THE_TYPE and t.kind != "string")
    if any(t.text == "(" for t in returns):
        why = "an attribute"
    definition = Definition(
        name, template, returns, parameters, body, line, line_text, line_of, why
    )
    return replace(definition, device=device)


def _closes(head: list[Token], k: int) -> bool:
    return head[k].text == ">" and angle_opening(head, k) == 1


def parameter(all_: list[Token]) -> Parameter:
    value = next((i for i, t in enumerate(all_) if t.text == "="), len(all_))
    default = " ".join(t.text for t in all_[value + 1 :])
    words = [t.text for t in all_[:value]]
    while words and words[-1] == "]":  # T name[8] is a pointer
        words = [*words[: len(words) - words[::-1].index("[") - 1]]
        words.insert(max(0, len(words) - 1), "*")
    named = len(words) > 1 and words[-1].isidentifier() and words[-1] not in ("const", "int")
    name = words.pop() if named else ""
    return Parameter(tuple(words), name, default)


def _template(all_: list[Token]) -> TemplateParameter:
    value = next((i for i, t in enumerate(all_) if t.text == "="), len(all_))
    default = " ".join(t.text for t in all_[value + 1 :])
    words = [t.text for t in all_[:value]]
    kind = " ".join(words[:-1])
    return TemplateParameter(words[-1], kind in ("typename", "class"), kind, default)
