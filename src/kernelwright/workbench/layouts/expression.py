"""Layouts as text: `(8,8):(8,1)`, `Sw<3,3,3> o A`, `A o B`, `A / B`, `A * B`, `complement(A, n)`,
`coalesce(A)`. Operators are applied from left to right; a layout may stand in brackets []."""

from __future__ import annotations

import re

from kernelwright.support.errors import UsageError

from . import algebra
from .algebra import Layout, Nested, Swizzle, Swizzled

TOKEN = re.compile(r"\s*(\d+|Sw|o\b|complement|coalesce|[():,<>/*\[\]])")


def parse(text: str) -> Layout | Swizzled:
    """The layout that an expression describes.

    Raises:
        UsageError: it is no expression, or no layout is the function.
    """
    reader = _Reader(text)
    layout = reader.expression()
    reader.end()
    return layout


class _Reader:
    def __init__(self, text: str):
        self.text, self.tokens, at = text, list[str](), 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None:
                raise UsageError(f"layout: {text[at:].strip()!r} is no part of a layout")
            self.tokens.append(match[1])
            at = match.end()

    def expression(self) -> Layout | Swizzled:
        if self._next() == "Sw":
            swizzle = self._swizzle()
            self._take("o")
            return Swizzled(swizzle, self._plain(self.expression()))
        layout = self._term()
        while self._next() in ("o", "/", "*"):
            operator, other = self._take(), self._term()
            do = {"o": algebra.composition, "/": algebra.divide, "*": algebra.product}[operator]
            layout = do(layout, other)
        return layout

    def end(self) -> None:
        if self.tokens:
            raise UsageError(f"layout: {self.text}: {' '.join(self.tokens)} is left over")

    def _term(self) -> Layout:
        if self._next() == "[":
            self._take()
            layout = self._plain(self.expression())
            self._take("]")
            return layout
        if self._next() in ("coalesce", "complement"):
            return self._function(self._take())
        shape = self._nested()
        if self._next() != ":":
            return Layout(shape, _compact(shape, 1)[0])
        self._take(":")
        return Layout(shape, self._nested())

    def _function(self, name: str) -> Layout:
        self._take("(")
        of = self._plain(self.expression())
        if name == "coalesce":
            self._take(")")
            return algebra.coalesce(of)
        self._take(",")
        n = self._number()
        self._take(")")
        return algebra.complement(of, n)

    def _swizzle(self) -> Swizzle:
        self._take("Sw")
        self._take("<")
        bits = self._number()
        self._take(",")
        base = self._number()
        self._take(",")
        shift = self._number()
        self._take(">")
        return Swizzle(bits, base, shift)

    def _nested(self) -> Nested:
        if self._next() != "(":
            return self._number()
        self._take("(")
        parts = [self._nested()]
        while self._next() == ",":
            self._take(",")
            parts.append(self._nested())
        self._take(")")
        return tuple(parts)

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise UsageError(f"layout: {self.text}: {token or 'the end'} instead of a number")
        return int(token)

    def _plain(self, of: Layout | Swizzled) -> Layout:
        if isinstance(of, Swizzled):
            raise UsageError(f"layout: {of}: a swizzle can only be the first part")
        return of

    def _next(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def _take(self, wanted: str = "") -> str:
        token = self._next()
        if wanted and token != wanted:
            raise UsageError(f"layout: {self.text}: {token or 'the end'} instead of {wanted}")
        if self.tokens:
            self.tokens.pop(0)
        return token


def _compact(shape: Nested, step: int) -> tuple[Nested, int]:
    """Strides without gaps, the first mode fastest, and the step after them."""
    if isinstance(shape, int):
        return step, step * shape
    strides: list[Nested] = []
    for part in shape:
        stride, step = _compact(part, step)
        strides.append(stride)
    return tuple(strides), step
