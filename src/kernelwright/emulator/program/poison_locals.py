"""Prepares variables of kernels for the checks.

Behind `float sum;` stands `kw::program::unset(sum, "sum");`, which fills the variable with a
pattern. A read that finds the pattern is a read of a variable that has no value. Behind an array in
shared memory stands a gap, so that what is beyond its end is no other array. In the head of a
`for`, the call is the value of one more variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cuda_builtins import names_of
from .tokens import CLOSING, Token, closing, split, text_of, tokens

_DEVICE = names_of("qualifier")
_FUNDAMENTAL = names_of("fundamental")
#: What begins a statement that is no declaration of a variable of its own.
_OTHERS = frozenset([
    "return", "delete", "new", "goto", "break", "continue", "case", "default", "else", "do", "if",
    "while", "for", "switch", "using", "typedef", "template", "asm", "throw", "public", "private",
    "struct", "class", "union", "enum", "static", "extern", "thread_local", "__shared__", "auto",
    "constexpr", "volatile", "operator", "friend", "try", "goto", "typename", "namespace",
])  # fmt: skip
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)


def poisoned(text: str) -> str:
    """The text with a call behind each such declaration."""
    gone = [m.span() for m in _DIRECTIVE.finditer(text)]
    blank = text
    for start, end in gone:
        blank = blank[:start] + re.sub(r"[^\n]", " ", blank[start:end]) + blank[end:]
    all_ = tokens(blank)
    parts: list[str] = []
    at = 0
    for start, end, by in sorted(_edits(text, all_)):
        parts += [text[at:start], by]
        at = end
    return "".join([*parts, text[at:]])


def _edits(text: str, all_: list[Token]) -> Iterator[tuple[int, int, str]]:
    """What to replace in the functions for the device: start, end, by what."""
    end_of_body = 0
    for i, token in enumerate(all_):
        if i < end_of_body or token.text not in _DEVICE:
            continue
        body = _body(all_, i)
        if body is None or _is_constexpr(all_, i, body[0]):
            continue
        end_of_body = body[1]
        inside = body[0]
        for k in range(body[0] + 1, body[1]):
            if all_[k].text in ("struct", "class", "union"):
                inside = max(inside, _end_of_type(all_, k))
            in_head = all_[k - 1].text == "(" and all_[k - 2].text == "for"
            if in_head and all_[k].text in _FUNDAMENTAL and (declaration := _declared(all_, k)):
                end, names = declaration
                calls = ", ".join(f'kw::program::unset({n}, "{n}")' for n in names)
                yield end - 1, end - 1, f", kw_unset{end} = ({calls}, 0)"
            elif k > inside and all_[k - 1].text in ("{", "}", ";") and all_[k].kind == "name":
                if all_[k].text == "__shared__":
                    yield from _shared(text, all_, k)
                elif declaration := _declared(all_, k):
                    end, names = declaration
                    calls = (f' kw::program::unset({n}, "{n}");' for n in names)
                    yield end, end, "".join(calls)


def _end_of_type(all_: list[Token], at: int) -> int:
    """The last token of what may be the definition of a type."""
    while at < len(all_) and all_[at].text not in ("{", ";", "(", ")", "="):
        at += 1
    end = closing(all_, at) if at < len(all_) and all_[at].text == "{" else None
    return at if end is None else end


def _body(all_: list[Token], at: int) -> tuple[int, int] | None:
    """The braces of the function whose specifier stands at `at`."""
    i = at
    while i < len(all_) and all_[i].text not in (";", "{", "="):
        if all_[i].text == "(":
            end = closing(all_, i)
            if end is None:
                return None
            i = end
        i += 1
    if i >= len(all_) or all_[i].text != "{":
        return None
    end = closing(all_, i)
    return None if end is None else (i, end)


def _shared(text: str, all_: list[Token], at: int) -> Iterator[tuple[int, int, str]]:
    """Gaps behind the arrays of a declaration in shared memory, and between them."""
    end = next((i for i in range(at, len(all_)) if all_[i].text in (";", "{", "=", "extern")), at)
    if all_[end].text != ";" or all_[end - 1].text != "]":
        return
    in_angles = any(t.text == "<" for t in all_[at:end])
    pieces = [(at, end)] if in_angles else split(all_, at, end, ",")
    first = pieces[0][0]
    while first < pieces[0][1] and all_[first + 1].text != "[":
        first += 1
    type_ = text_of(text, all_, at, first)
    for _, comma in pieces[:-1]:
        place = all_[comma].start
        yield place, place + 1, f"; KW_GAP(kw_gap{place}); {type_} "
    arrays = (_array(all_, start, last) for start, last in pieces)
    seen = "".join(f" KW_WRITTEN_ELSEWHERE({name});" for name in arrays if name)
    yield all_[end].end, all_[end].end, f" KW_GAP(kw_gap{all_[end].end});{seen}"


def _array(all_: list[Token], start: int, end: int) -> str | None:
    """The name of an array, if one is declared there."""
    return next((all_[i - 1].text for i in range(start + 1, end) if all_[i].text == "["), None)


def _is_constexpr(all_: list[Token], at: int, end: int) -> bool:
    while at and all_[at - 1].kind == "name":
        at -= 1
    return any(t.text in ("constexpr", "consteval") for t in all_[at:end])


def _declared(all_: list[Token], at: int) -> tuple[int, list[str]] | None:
    i = _behind_type(all_, at)
    if i is None:
        return None
    end = i
    while end < len(all_) and all_[end].text != ";":
        if all_[end].text == "}":
            return None
        if all_[end].kind == "mark" and all_[end].text in CLOSING:
            closed = closing(all_, end)
            if closed is None:
                return None
            end = closed
        end += 1
    names: list[str] = []
    for first, last in split(all_, i, end, ","):
        while first < last and all_[first].text == "*":
            first += 1
        if first >= last or all_[first].kind != "name":
            return None
        behind = first + 1
        while behind < last and all_[behind].text == "[":
            closed = closing(all_, behind)
            if closed is None:
                return None
            behind = closed + 1
        if behind == last:
            names.append(all_[first].text)
        elif all_[behind].text not in ("=", "(", "{"):
            return None
    return (all_[end].end, names) if names else None


def _behind_type(all_: list[Token], at: int) -> int | None:
    """Where the declarators begin, if a type stands at `at`."""
    i = at
    if all_[i].text in _OTHERS or i + 1 >= len(all_):
        return None
    if all_[i].text in ("const", "register"):
        return None
    if all_[i].text in _FUNDAMENTAL:
        while all_[i].text in _FUNDAMENTAL:
            i += 1
    else:
        i += 1
        while all_[i].text == "::" and all_[i + 1].kind == "name":
            i += 2
        if all_[i].text == "<":
            depth = 0
            while i < len(all_):
                depth += (all_[i].text == "<") - (all_[i].text == ">")
                if all_[i].text in (";", "{", "}", "=", "&", "|", "?"):
                    return None
                i += 1
                if not depth:
                    break
            while i + 1 < len(all_) and all_[i].text == "::" and all_[i + 1].kind == "name":
                i += 2
    while i < len(all_) and all_[i].text == "*":
        i += 1
    if i >= len(all_) or all_[i].kind != "name" or all_[i].text in _OTHERS:
        return None
    return i
