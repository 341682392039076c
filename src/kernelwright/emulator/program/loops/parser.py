"""The statements of a function's body as a tree over its tokens.

The parser refuses what it cannot parse with certainty; the caller then leaves the kernel unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .. import asm
from ..cuda_builtins import names_of
from ..tokens import CLOSING, Token, closing, split


class Refused(Exception):
    """Why a kernel is not turned into loops."""


@dataclass(eq=False)
class Node:
    """A statement: tokens `first` to `last`, both included.

    Attributes:
        kind: block, if, for, while, do, switch, jump, barrier, declaration, type, expression or
            empty.
        head: index pairs of the expressions in its parentheses; of `for`, condition and increment.
        parts: statements in it; of `for`, the first is its initialization.
        declared: the names that a declaration introduces.
    """

    kind: str
    first: int
    last: int
    head: list[tuple[int, int]] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)
    declared: list[Declarator] = field(default_factory=list)
    fixed: bool = False  # of a declaration: constexpr, static or in shared memory

    def walk(self) -> Iterator[Node]:
        yield self
        for p in self.parts:
            yield from p.walk()

    @property
    def jumps(self) -> bool:
        """Whether it is only a jump."""
        if self.kind == "block":
            return bool(self.parts) and all(p.jumps for p in self.parts)
        return self.kind == "jump"


@dataclass(eq=False)
class Declarator:
    """One name of a declaration, with index pairs of its parts: the type, the marks of pointers and
    references, the sizes of arrays and the initializer."""

    name: int
    type_: tuple[int, int]
    marks: tuple[int, int]
    sizes: tuple[int, int]
    value: tuple[int, int]  # with = or its brackets


_FUNDAMENTAL = names_of("fundamental") | {"void", "auto", "wchar_t", "char16_t"}
_SPECIFIERS = frozenset(
    ["const", "constexpr", "static", "register", "thread_local", "__shared__", "extern"]
)
_ATTRIBUTES = frozenset(["__align__", "alignas", "__attribute__", "__builtin_align__"])
_REFUSED = frozenset(
    [
        "goto",
        "try",
        "struct",
        "class",
        "union",
        "enum",
        "template",
        "case",
        "default",
        "volatile",
    ]
)
#: What ends a name in its declaration.
_ENDS = frozenset("=;,[({:")


class Parser:
    """Parses tokens; those of directives are not among them."""

    def __init__(self, tokens: list[Token]) -> None:
        self.all = tokens

    def text(self, at: int) -> str:
        return self.all[at].text if at < len(self.all) else ""

    def close(self, at: int) -> int:
        end = closing(self.all, at)
        if end is None:
            raise Refused("brackets that do not match")
        return end

    def block(self, at: int) -> Node:
        """The statements between the braces that open at `at`."""
        end = self.close(at)
        node, i = Node("block", at, end), at + 1
        while i < end:
            node.parts.append(self.statement(i))
            i = node.parts[-1].last + 1
        return node

    def statement(self, at: int) -> Node:
        word = self.text(at)
        if word == "{":
            return self.block(at)
        if word == ";":
            return Node("empty", at, at)
        if word in _REFUSED or (self.all[at].kind == "name" and self.text(at + 1) == ":"):
            raise Refused(f"the statement {word}")
        if word in ("if", "for", "while", "do", "switch"):
            return getattr(self, f"_{word}")(at)
        end = self._end(at)
        if word in asm.NAMES:
            return Node("expression", at, end)
        if word in ("return", "break", "continue"):
            return Node("jump", at, end)
        if word in ("using", "typedef", "static_assert", "namespace"):
            return Node("type", at, end)
        declared = self.declarators(at, end)
        if declared is None:
            return Node("expression", at, end)
        words = {t.text for t in self.all[at : declared[0].name]}
        fixed = bool(words & {"constexpr", "static", "thread_local", "__shared__", "extern"})
        return Node("declaration", at, end, declared=declared, fixed=fixed)

    def _end(self, at: int) -> int:
        """The semicolon that ends a statement."""
        while at < len(self.all):
            text = self.text(at)
            if text == ";":
                return at
            if self.all[at].kind == "mark" and text in CLOSING:
                if text == "{" and self.text(at - 1) == ")":
                    raise Refused("a macro before braces, or a function")
                at = self.close(at)
            elif text in (")", "]", "}"):
                break
            at += 1
        raise Refused("a statement without an end")

    def _if(self, at: int) -> Node:
        paren = at + 2 if self.text(at + 1) == "constexpr" else at + 1
        if self.text(paren) != "(":
            raise Refused("the statement if")
        end = self.close(paren)
        if len(split(self.all, paren + 1, end, ";")) > 1:
            raise Refused("a condition with a declaration")
        parts = [self.statement(end + 1)]
        if self.text(parts[0].last + 1) == "else":
            parts.append(self.statement(parts[0].last + 2))
        return Node("if", at, parts[-1].last, [(paren + 1, end)], parts)

    def _for(self, at: int) -> Node:
        end = self.close(at + 1)
        pieces = split(self.all, at + 2, end, ";")
        if len(pieces) != 3:
            raise Refused("a loop over a range")
        start = self.statement(at + 2)
        body = self.statement(end + 1)
        return Node("for", at, body.last, pieces[1:], [start, body])

    def _while(self, at: int) -> Node:
        end = self.close(at + 1)
        body = self.statement(end + 1)
        return Node("while", at, body.last, [(at + 2, end)], [body])

    def _do(self, at: int) -> Node:
        body = self.statement(at + 1)
        paren = body.last + 2
        if self.text(paren - 1) != "while" or self.text(paren) != "(":
            raise Refused("the statement do")
        end = self.close(paren)
        return Node("do", at, end + 1, [(paren + 1, end)], [body])

    def _switch(self, at: int) -> Node:
        end = self.close(at + 1)
        if self.text(end + 1) != "{":
            raise Refused("the statement switch")
        return Node("switch", at, self.close(end + 1), [(at + 2, end)])

    # ---- declarations

    def declarators(self, at: int, end: int) -> list[Declarator] | None:
        """The names that a statement declares, or None if it is an expression."""
        first, i = at, at
        built_in = named = False
        while i < end:
            text = self.text(i)
            if text in _ATTRIBUTES and self.text(i + 1) == "(":
                i = self.close(i + 1) + 1
            elif text in _SPECIFIERS:
                i += 1
            elif text in _FUNDAMENTAL:
                built_in, i = True, i + 1
            elif not built_in and not named and self.all[i].kind == "name":
                behind = self._type_name(i)
                if behind is None:
                    return None
                named, i = True, behind
            else:
                break
        if not built_in and not named:
            return None
        type_ = (first, i)
        declarators: list[Declarator] = []
        for start, stop in split(self.all, i, end, ","):
            one = self._declarator(type_, start, stop)
            if one is None and declarators:  # a comma between template arguments
                while declarators and not any(
                    t.text == "<" for t in self.all[slice(*declarators[-1].value)]
                ):
                    declarators.pop()
                if not declarators:
                    raise Refused("a declaration of an unknown form")
                one = self._declarator(type_, declarators.pop().marks[0], stop)
            if one is None:
                return None
            declarators.append(one)
        return declarators

    def _type_name(self, at: int) -> int | None:
        """The token behind a name such as a::b<int>, or None."""
        if self.text(at) == "typename":
            at += 1
        while at < len(self.all) and self.all[at].kind == "name":
            at += 1
            if self.text(at) == "<":
                end = self._angle(at)
                if end is None:
                    return None
                at = end + 1
            if self.text(at) != "::":
                return at
            at += 1
        return None

    def _angle(self, at: int) -> int | None:
        depth = 0
        while at < len(self.all):
            text = self.text(at)
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return at
            elif text in ("(", "["):
                at = self.close(at)
            elif text in (";", "{", "}", ")", "]"):
                return None
            at += 1
        return None

    def _declarator(self, type_: tuple[int, int], at: int, end: int) -> Declarator | None:
        start = at
        while at < end and self.text(at) in ("*", "&", "const", "__restrict__", "__restrict"):
            at += 1
        if at >= end or self.all[at].kind != "name":
            return None
        after = self.text(at + 1) if at + 1 < end else ";"
        if after not in _ENDS or after == ":":
            return None
        i = at + 1
        while i < end and self.text(i) == "[":
            i = self.close(i) + 1
        return Declarator(at, type_, (start, at), (at + 1, i), (i, end))
