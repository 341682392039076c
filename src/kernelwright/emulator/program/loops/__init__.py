"""Kernels with barriers as loops over the threads of a block, beside the code for single threads.

    tree.py      statements
    facts.py     what the program's files say about names
    regions.py   the statements between barriers; which values are the same for all threads
    text.py      the loops as C++

A kernel that cannot be shown to do the same stays as it is: its threads are fibers then.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from ..tokens import Token, closing, opening, split, tokens
from .facts import Facts
from .regions import Kernel
from .text import Writer, lines
from .tree import Node, Parser, Refused

__all__ = ["Facts", "looped"]

_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.M)
_BARRIER = re.compile(r"\b(?:__syncthreads|sync)\s*\(")


def looped(text: str, facts: Facts, why: dict[str, str | None] | None = None) -> str:
    """A file of a program, with loops in those of its kernels that allow them.

    Args:
        why: gets the kernels with barriers: None, or why one is left as it is.
    """
    if not _BARRIER.search(text):
        return text
    text = _simpler(text)
    all_, directives = _code(text)
    line_of = lines(text)
    made: list[str] = []
    at = 0
    for kernel in _kernels(all_):
        start, end = all_[kernel.body].start, all_[kernel.end].end
        if not _BARRIER.search(text[start:end]):
            continue
        reason = None
        try:
            inside = [text[a:b] for a, b in directives if start < a < end]
            if any(not re.match(r"[ \t]*#[ \t]*pragma\b", d) for d in inside):
                raise Refused("directives of the preprocessor in it")
            body = Parser(all_).block(kernel.body)
            one = Kernel(all_, body, kernel.parameters, kernel.types, facts)
            loops = Writer(one, text, line_of).write()
            made += [text[at : start + 1], loops]
            at = start + 1
        except Refused as e:
            reason = str(e)
        if why is not None:
            why[kernel.name] = reason
    return "".join([*made, text[at:]])


def _code(text: str) -> tuple[list[Token], list[tuple[int, int]]]:
    """The tokens outside directives, and where these are."""
    directives = [m.span() for m in _DIRECTIVE.finditer(text)]
    starts = [a for a, _ in directives]
    all_: list[Token] = []
    for t in tokens(text):
        i = bisect_right(starts, t.start) - 1
        if i < 0 or t.start >= directives[i][1]:
            all_.append(t)
    return all_, directives


def _simpler(text: str) -> str:
    """The text with equivalent statements in its kernels that say the same with less.

    `int a = 1, b = 2;` becomes `int a = 1; int b = 2;`: one of the variables may be the same for
    all threads and the other not. At the end of a kernel, `if (x) { ... }` around barriers becomes
    `if (!(x)) return; { ... }`.
    """
    all_, _ = _code(text)
    edits: list[tuple[int, int, str]] = []
    for kernel in _kernels(all_):
        try:
            body = Parser(all_).block(kernel.body)
        except Refused:
            continue
        for block in (n for n in body.walk() if n.kind == "block"):
            for d in (d for p in block.parts if not p.fixed for d in p.declared[1:]):
                type_ = " ".join(t.text for t in all_[slice(*d.type_)])
                comma = all_[d.marks[0] - 1]
                edits.append((comma.start, comma.end, f"; {type_} "))
        for node in _conditions_at_the_end(body):
            (a, b), (inside,) = node.head[0], node.parts
            code = text[all_[inside.first].start : all_[inside.last].end]
            if _BARRIER.search(code) and all_[a - 2].text == "if":
                edits.append((all_[a - 1].start, all_[a - 1].end, "(!("))
                edits.append((all_[b].start, all_[b].end, ")) return;"))
    made, at = [], 0
    for start, end, other in sorted(edits):
        made += [text[at:start], other]
        at = end
    return "".join([*made, text[at:]])


def _conditions_at_the_end(body: Node) -> Iterator[Node]:
    """The statement that ends a kernel, and those that end it, if they are conditions."""
    last = body.parts[-1] if body.parts else None
    while last is not None and last.kind == "if" and len(last.parts) == 1:
        if last.parts[0].kind != "block":
            return
        yield last
        last = last.parts[0].parts[-1] if last.parts[0].parts else None


class _Found:
    def __init__(self, name: str, body: int, end: int) -> None:
        self.name, self.body, self.end = name, body, end
        self.parameters: dict[str, bool] = {}  # whether each is a pointer
        self.types: set[str] = set()


def _kernels(all_: list[Token]) -> Iterator[_Found]:
    """The kernels that a file defines."""
    for i, t in enumerate(all_):
        if t.text != "__global__":
            continue
        k, last = i + 1, (0, 0)
        while k < len(all_) and all_[k].text not in ("{", ";"):
            if all_[k].text == "(":
                end = closing(all_, k)
                if end is None:
                    break
                last, k = (k, end), end
            k += 1
        else:
            if last[1] and k < len(all_) and all_[k].text == "{":
                end = closing(all_, k)
                if end is not None:
                    found = _Found(all_[last[0] - 1].text, k, end)
                    found.parameters = _parameters(all_, *last)
                    found.types = _template(all_, i)
                    yield found


def _parameters(all_: list[Token], first: int, last: int) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for a, b in split(all_, first + 1, last, ","):
        value = next((i for i in range(a, b) if all_[i].text == "="), b)
        names = [i for i in range(a, value) if all_[i].kind == "name"]
        if names:
            marks = {t.text for t in all_[a:value]}
            found[all_[names[-1]].text] = bool(marks & {"*", "["})
    return found


def _template(all_: list[Token], at: int) -> set[str]:
    """The names in the template parameter list before a kernel."""
    i = at - 1
    while i >= 0 and (all_[i].kind in ("name", "string") or all_[i].text == ")"):
        if all_[i].text == ")":
            before = opening(all_, i)
            if before is None:
                return set()
            i = before
        i -= 1
    if i < 0 or all_[i].text != ">":
        return set()
    while i >= 0 and all_[i].text != "template":
        if all_[i].text in (";", "}"):
            return set()
        i -= 1
    return {t.text for t in all_[i:at] if t.kind == "name"}
