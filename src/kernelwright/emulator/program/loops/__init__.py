"""Kernels whose threads synchronize, as loops over the threads of a block, beside the code for
single threads.

A meeting is a barrier or a warp-wide operation (a shuffle, a vote, __syncwarp), where threads wait
for each other or exchange values.

    tree.py         statements
    facts.py        what the program's files say about names
    definitions.py  the functions that they define
    meetings.py     makes each warp-wide operation a statement of its own
    functions.py    inlines device functions that contain meetings
    code.py         what prevents loops in a kernel
    names.py        the variables of a kernel
    values.py       which values are the same for all threads
    regions.py      the statements between two meetings
    text.py         the loops as C++

A kernel for which loops cannot be shown to be equivalent is left unchanged: its threads run as
fibers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..tokens import Token, closing, opening, split
from .definitions import code_of, lines
from .facts import MEETS, Facts
from .meetings import Meetings, divergent
from .regions import Kernel
from .text import Writer
from .tree import Node, Parser, Refused
from .values import Divergent

__all__ = ["Facts", "looped"]

_PASSES = 12  # of conditions in conditions


def looped(text: str, facts: Facts, why: dict[str, str | None] | None = None) -> str:
    """A file of a program, with loops in those of its kernels that allow them.

    Args:
        why: receives, for each kernel with meetings, the reason why it is left unchanged, or None.
    """
    if "__global__" not in text or not facts.meets:
        return text
    text = _simpler(text)
    all_, directives = code_of(text)
    line_of, said = lines(text), text.split("\n")
    made: list[str] = []
    at = 0
    for kernel in _kernels(all_):
        if not _meets(all_[kernel.body : kernel.end], facts):
            continue
        start, end = all_[kernel.body].start, all_[kernel.end].end
        reason = None
        try:
            inside = [text[a:b] for a, b in directives if start < a < end]
            if any(not re.match(r"[ \t]*#[ \t]*pragma\b", d) for d in inside):
                raise Refused("directives of the preprocessor in it")
            body = f"/*@{line_of(start)}*/{text[start:end]}"
            loops = _loops(kernel, body, facts, said)
            made += [text[at : start + 1], loops]
            at = start + 1
        except Refused as e:
            reason = str(e)
        if why is not None:
            why[kernel.name] = reason
    return "".join([*made, text[at:]])


def _meets(body: list[Token], facts: Facts) -> bool:
    """Whether the threads of a kernel synchronize or exchange values."""
    reached = (t for name, all_ in facts.reached(body).items() if name != "operator" for t in all_)
    return any(MEETS.fullmatch(t.text) for t in (*facts.meaning(body), *reached))


def _loops(kernel: _Found, text: str, facts: Facts, said: list[str]) -> str:
    """The loops of a kernel whose body is a text.

    Raises:
        Refused: it cannot be shown that they are equivalent.
    """
    reached = (t for all_ in facts.reached(code_of(text)[0]).values() for t in all_)
    for t in (*kernel.head, *facts.meaning(code_of(text)[0]), *reached):
        if t.text in facts.volatile_types:
            raise Refused(f"{t.text} is volatile")
    meetings = Meetings(facts, kernel.volatile, set(kernel.parameters), said)
    text = meetings.body(text)
    for _ in range(_PASSES):
        all_, _directives = code_of(text)
        body = Parser(all_).block(0)
        try:
            one = Kernel(all_, body, kernel.parameters, kernel.types, facts)
            return Writer(one, text, lines(text)).write()
        except Divergent as e:
            text = meetings.body(divergent(text, all_, e.nodes, meetings.fresh))
    raise Refused("conditions in conditions around operations of a warp")


def _simpler(text: str) -> str:
    """The text with statements of its kernels replaced by simpler equivalent ones.

    `int a = 1, b = 2;` becomes `int a = 1; int b = 2;`: one of the variables may be the same for
    all threads and the other not. At the end of a kernel, `if (x) { ... }` around barriers becomes
    `if (!(x)) return; { ... }`.
    """
    all_, _ = code_of(text)
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
            said = text[all_[inside.first].start : all_[inside.last].end]
            if MEETS.search(said) and all_[a - 2].text == "if":
                edits.append((all_[a - 1].start, all_[a - 1].end, "(!("))
                edits.append((all_[b].start, all_[b].end, ")) return;"))
    made, at = [], 0
    for start, end, other in sorted(edits):
        made += [text[at:start], other]
        at = end
    return "".join([*made, text[at:]])


def _conditions_at_the_end(body: Node) -> Iterator[Node]:
    """The last statement of a kernel if it is a condition, then the last statement in that, and so
    on."""
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
        self.head: list[Token] = []  # its parameters
        self.volatile: set[str] = set()  # parameters that are pointers to volatile


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
                    found.head = all_[last[0] : last[1]]
                    found.volatile = _volatile(all_, *last)
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


def _volatile(all_: list[Token], first: int, last: int) -> set[str]:
    parts = (all_[a:b] for a, b in split(all_, first + 1, last, ",") if a < b)
    found: set[str] = set()
    for p in parts:
        words = [t.text for t in p]
        if "volatile" in words and ("*" in words or "[" in words):
            found.add(words[words.index("[") - 1 if "[" in words else -1])
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
