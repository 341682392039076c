"""Accesses to volatile memory, by which the lanes of a warp exchange values in code that counts on
lanes which execute each statement together.

    s[t] += s[t + 16];
        becomes KwLockstep(s[t]) += (KwBeforeWrite(s[t]), KwRead(s[t + 16]));

Which places are volatile, only the compiler knows (names of types, macros, deduced parameters): for
any other place these words do nothing (program/lockstep.h).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

from . import asm
from .cuda_builtins import names_of
from .tokens import Token, angle_opening, closing, opening, tokens

VOLATILE = names_of("volatile")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\r?\n|[^\n])*)", re.M)
_TYPE = re.compile(r"\busing\s+(\w+)\s*=([^;]*);|\btypedef\b([^;{}()]*?)(\w+)\s*;")
#: Marks and words before the first expression of a statement, or of a part of it.
_BEFORE = frozenset([*";{}(),=:?[&|", "else", "do", "return"])
_CONTROL = frozenset(["if", "for", "while", "switch"])
_OPERATORS = frozenset("+-*/%&|^")


def volatile_words(texts: Iterable[str]) -> frozenset[str]:
    """Names that make a type volatile: the keyword, and the macros and types that contain it; empty
    if nothing in the program is volatile."""
    contents: dict[str, set[str]] = {}
    used = False
    for text in texts:
        used |= any(w in text for w in VOLATILE) and not VOLATILE.isdisjoint(_names(text))
        for m in _DEFINE.finditer(text):
            contents.setdefault(m[1], set()).update(_names(m[2]))
        for m in _TYPE.finditer(text):
            contents.setdefault(m[1] or m[4], set()).update(_names(m[2] or m[3]))
    words = set(VOLATILE)
    while more := {n for n, its in contents.items() if n not in words and its & words}:
        words |= more
    return frozenset(words) if used else frozenset()


def _names(text: str) -> set[str]:
    """The names in a text, without the qualifiers of asm statements."""
    all_ = tokens(text)
    return {t.text for i, t in enumerate(all_) if t.kind == "name" and not qualifies_asm(all_, i)}


def qualifies_asm(all_: list[Token], at: int) -> bool:
    """Whether a word qualifies an asm statement."""
    return at > 0 and all_[at - 1].text in asm.NAMES


def volatile_names(all_: list[Token], words: frozenset[str]) -> set[str]:
    """Names that are declared volatile, or whose type is deduced."""
    deduced = words | {"auto"} if words else words
    return _declared(all_, (i for i, t in enumerate(all_) if t.text in deduced)) - deduced


def volatile_names_outside(all_: list[Token], words: frozenset[str]) -> tuple[set[str], set[str]]:
    """Names that are declared volatile outside of functions and their parameters: variables, and
    members of classes."""
    places = [(i, inside) for i, inside in _outside(all_) if all_[i].text in words]
    variables, members = ([i for i, k in places if k == inside] for inside in (False, True))
    return _declared(all_, variables) - words, _declared(all_, members) - words


def _outside(all_: list[Token]) -> Iterator[tuple[int, bool]]:
    """The tokens outside of functions, and whether each is in a class."""
    i, open_ = 0, list[bool]()
    while i < len(all_):
        text = all_[i].text
        body = text == "{" and i and all_[i - 1].text in (")", "const", "noexcept")
        end = closing(all_, i) if body or text == "(" else None
        if end is None and text == "{":
            start = next((k for k in range(i - 1, -1, -1) if all_[k].text in ";{}"), -1)
            words = {t.text for t in all_[start + 1 : i]}
            open_.append(not words.isdisjoint(("struct", "class", "union")))
        elif end is None and text == "}" and open_:
            open_.pop()
        yield i, bool(open_) and open_[-1]
        i = i + 1 if end is None else end + 1


def _declared(all_: list[Token], places: Iterable[int]) -> set[str]:
    names: set[str] = set()
    for i in places:
        k = i + 1 if not qualifies_asm(all_, i) else len(all_)
        while k < len(all_):
            ends = all_[k].text in (";", ")", "{", "}", "#", "=", "(")
            if (ends or all_[k].text in (",", "[")) and all_[k - 1].kind == "name":
                names.add(all_[k - 1].text)
            if ends:
                break
            k += 1
    return names


def assigned_value(all_: list[Token], end: int, text: str) -> tuple[int, int] | None:
    """What is assigned to the place that ends before `end`; None for steps and lists."""
    macros = (m.end() for m in _DEFINE.finditer(text) if m.start() <= all_[end].start < m.end())
    limit = next(macros, len(text))
    first = end
    while all_[first].text != "=":
        if all_[first].text not in "+-*/%&|^<>" or first > end + 2:
            return None
        first += 1
    first = last = first + 1
    while last < len(all_) and all_[last].start < limit:
        if all_[last].text in (";", ",", ")", "}", "]"):
            break
        close = closing(all_, last) if all_[last].text in ("(", "[", "{") else last
        if close is None:
            return None
        last = close + 1
    return (first, last) if last > first and all_[first].text != "{" else None


def writes(all_: list[Token], names: Set[str]) -> Iterator[tuple[int, int]]:
    """The places that a text writes, as spans of tokens: elements of arrays, what pointers point
    to, and variables of the names. Others cannot be volatile and in memory that threads share."""
    for i in range(1, len(all_) - 1):
        end = _assigned(all_, i)
        if end is not None:
            postfix = all_[i].text in ("+", "-") and all_[i + 1].text == all_[i].text
            first = _place(all_, end, not postfix)
            if first is not None and _shared(all_[first:end], names):
                yield first, end
        elif start := _stepped(all_, i):
            end = _end_of_place(all_, start)
            if end > start and _shared(all_[start:end], names):
                yield start, end


def reads(all_: list[Token], names: Set[str], taken: Set[int]) -> Iterator[tuple[int, int]]:
    """Places of the names that a text reads, as spans of tokens: s[t], *p, s->x and s itself.

    Args:
        taken: tokens in places that are written, or that stay as they are.
    """
    at = 0
    for i in range(1, len(all_) - 1):
        start = _read_at(all_, i, names) if i >= at and i not in taken else None
        if start is None:
            continue
        end = _end_of_place(all_, start)
        before, after = all_[start - 1], all_[end] if end < len(all_) else all_[-1]
        declares = before.text in ("*", "&") and _declares(all_, start - 1)
        declares |= before.text == "," and _declaration_around(all_, start - 1)
        value = before.text in _BEFORE or before.text in _OPERATORS or before.text in "<>!~"
        value &= before.text != ">" or not _template(all_, start - 1)
        address = before.text == "&" and all_[start - 2].text in _BEFORE
        if declares or address or not value or after.text == "(" or after.kind == "name":
            continue
        argument = before.text in ("(", ",") and after.text in (",", ")")  # perhaps a reference
        if argument and not (before.text == "(" and all_[start - 2].text in _CONTROL):
            continue
        if not taken.isdisjoint(range(start, end)):
            continue
        yield start, end
        at = end


def _read_at(all_: list[Token], i: int, names: Set[str]) -> int | None:
    """The start of a place whose first name, or bracket after *, stands at `i`."""
    t = all_[i]
    pointer = all_[i - 1].text == "*" and not _declares(all_, i - 1)
    if t.text == "(" and pointer:
        end = closing(all_, i)
        if end is None or names.isdisjoint(x.text for x in all_[i:end]):
            return None
    elif t.kind != "name" or t.text not in names or all_[i - 1].text in (".", "->", "::"):
        return None
    while all_[i - 1].text == "*" and not _declares(all_, i - 1):
        i -= 1
    return i


def _template(all_: list[Token], i: int) -> bool:
    """Whether the > at `i` seems to end template arguments."""
    start = angle_opening(all_, i)
    plain = start is not None and all(
        t.kind in ("name", "number") or t.text in ("::", ",", "*", "&", "<", ">")
        for t in all_[start:i]
    )
    return plain and all_[(start or 1) - 1].kind == "name"


def _near(all_: list[Token], i: int) -> bool:
    return all_[i - 1].end == all_[i].start


def _assigned(all_: list[Token], i: int) -> int | None:
    """The end of the place before the assignment whose first mark is at `i`, x++ among them."""
    t = all_[i].text
    if all_[i].kind != "mark" or t not in "=+-*/%&|^<>":
        return None
    before = all_[i - 1]
    steps = i > 2 and before.text in ("+", "-") and all_[i - 2].text == before.text
    steps = steps and _near(all_, i - 1)  # *p++ = x
    if not (steps or before.kind == "name" or before.text in (")", "]")):
        return None
    following = "".join(x.text for x in all_[i : i + 3])
    joined = _near(all_, i + 1)
    if t == "=":
        return None if joined and following[1] == "=" else i
    if t in "+-" and joined and following[1] == t:
        after = all_[min(i + 2, len(all_) - 1)]
        return i if after.kind == "mark" and after.text != "(" else None
    if t in _OPERATORS and joined and following[1] == "=":
        return i
    if t in "<>" and following[1:] == f"{t}=" and joined and _near(all_, i + 2):
        return i
    return None


def _stepped(all_: list[Token], i: int) -> int | None:
    """The start of the place behind ++ or -- at `i`."""
    t = all_[i]
    twice = t.text in ("+", "-") and all_[i + 1].text == t.text and _near(all_, i + 1)
    if not twice or i + 2 >= len(all_):
        return None
    before = all_[i - 1]
    if (before.kind in ("number", "name") and before.text not in _BEFORE) or before.text in ")]":
        return None
    return i + 2


def _place(all_: list[Token], end: int, marks: bool) -> int | None:
    """Where the place that ends before `end` starts, with the marks before it (*p); None if that is
    a declaration, or no place."""
    i = end - 1
    while i > 1 and all_[i].text in ("+", "-"):  # p++
        i -= 1
    while True:  # postfix: s[t], f(x)[i], a.b, p->q
        t = all_[i]
        if t.text in (")", "]"):
            before = opening(all_, i)
            if before is None or before == 0:
                return None
            i = before
            if all_[i - 1].text == ")" and t.text == ")" and not _controls(all_, i - 1):
                return None  # void (*f)(int)
            named = all_[i - 1].kind == "name" and all_[i - 1].text not in _BEFORE
            if t.text == "]" or (named and all_[i - 1].text not in _CONTROL):
                i -= 1
                continue
            if all_[i - 1].text == ">":
                angle = angle_opening(all_, i - 1)
                if angle and all_[angle - 1].kind == "name":
                    i = angle - 1
                    continue
        elif t.kind != "name":
            return None
        if i and all_[i - 1].text in (".", "->", "::"):
            i -= 2 if i > 1 else 1
            if i < 0:
                return None
            continue
        break
    if marks:
        return _prefixed(all_, i)
    return None if i and all_[i - 1].kind == "name" and all_[i - 1].text not in _BEFORE else i


def _prefixed(all_: list[Token], i: int) -> int | None:
    """The start of a place with the marks before it: *p, *(int *)p, *++p."""
    while i:
        before = all_[i - 1]
        if before.text in ("*", "&") and not _declares(all_, i - 1):
            i -= 1
        elif before.text in ("+", "-") and all_[i - 2].text == before.text:
            i -= 2
        elif before.text == ")" and all_[i - 2].text == "*":  # a cast
            start = opening(all_, i - 1)
            if start is None:
                return None
            i = start
        else:
            break
    if i and all_[i - 1].text not in _BEFORE and not _in_macro(all_, i):
        return None
    if i and all_[i - 1].text == "," and _declaration_around(all_, i - 1):
        return None
    return i


def _controls(all_: list[Token], i: int) -> bool:
    """Whether the bracket that `i` closes is that of if, for, while or switch, or a cast."""
    start = opening(all_, i)
    return bool(start) and (all_[start - 1].text in _CONTROL or all_[i - 1].text == "*")


def _declares(all_: list[Token], i: int) -> bool:
    """Whether the * or & at `i` stands behind a type."""
    while i and all_[i].text in ("*", "&"):
        i -= 1
    t = all_[i]
    return (t.kind == "name" and t.text not in _BEFORE) or t.text in (">", "]")


def _in_macro(all_: list[Token], i: int) -> bool:
    return i > 1 and all_[i - 2].text == "define"


def _declaration_around(all_: list[Token], i: int) -> bool:
    """Whether the comma at `i` separates names of a declaration or parameters."""
    while i and all_[i].text not in (";", "{", "("):
        before = opening(all_, i) if all_[i].text in (")", "]", "}") else None
        if all_[i].text == "}" and (before is None or all_[before - 1].text != "="):
            break
        i = (i if before is None else before) - 1
    i += 1
    while all_[i].text == "#" and all_[i + 1].text in ("line", "endif"):  # behind loops
        i += 3 if all_[i + 1].text == "line" else 2
    if all_[i].kind != "name":
        return False
    k = i + 1
    while all_[k].text in ("*", "&", "::") or (all_[k].text == "<" and closing_angle(all_, k)):
        k = closing_angle(all_, k) if all_[k].text == "<" else k + 1
        if k is None or k >= len(all_):
            return False
    return all_[k].kind == "name"


def closing_angle(all_: list[Token], at: int) -> int | None:
    """The index behind the > of a template argument list, or None."""
    depth = 0
    for k in range(at, min(at + 40, len(all_))):
        depth += (all_[k].text == "<") - (all_[k].text == ">")
        if all_[k].text in (";", "{", "}"):
            return None
        if depth == 0:
            return k + 1
    return None


def _end_of_place(all_: list[Token], start: int) -> int:
    """The end of the place that starts at `start`."""
    i = start
    while i < len(all_) and all_[i].text in ("*", "("):
        if all_[i].text == "(":
            end = closing(all_, i)
            i = len(all_) if end is None else end
            break
        i += 1
    i += 1
    while i < len(all_):
        if all_[i].text == "[":
            end = closing(all_, i)
            i = len(all_) if end is None else end + 1
        elif all_[i].text in (".", "->", "::"):
            i += 2
        else:
            break
    return min(i, len(all_))


def _shared(place: list[Token], names: Set[str]) -> bool:
    last, first = place[-1].text, place[0].text
    return last == "]" or first in ("*", "(") or any(t.text in names for t in place)
