"""Symbolic integers: sizes that record what a plan depends on, so that one plan serves them all.

Selection and planning are ordinary Python over the sizes of a call. Given a `SymbolicInt` in place
of a batch size, they compute with its present value, and each result carries its source: the
expression over the open sizes. Where the code decides (a comparison, a rounding to a power of two,
a conversion to a plain integer by `fixed`), the trace records the decision. For all sizes with the
same decisions, the code would have taken the same path: they are the plan's guard. Code that needs
the size itself (an index, part of a kernel's name) gets Python's TypeError.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from struct import calcsize
from threading import Lock
from typing import Any, Generic, TypeVar

from kernelwright.support import generated_code

_printed: ContextVar[str] = ContextVar("printed", default="")


@contextmanager
def printed(how: str) -> Generator[None]:
    """Allow open sizes to be printed as their values inside the block: "told" for messages, which
    do not affect the plan; "fixed" for keys, whose printing fixes the size."""
    token = _printed.set(how)
    try:
        yield
    finally:
        _printed.reset(token)


class Trace:
    """The open sizes of one call, by name.

    Attributes:
        decisions: the values of the expressions that code has relied on, in order.
    """

    def __init__(self, values: dict[str, int]):
        self.values = values
        self.decisions: dict[str, int] = {}

    def size(self, name: str) -> SymbolicInt:
        return SymbolicInt(self, self.values[name], name)

    def decide(self, value: int, expression: str) -> int:
        self.decisions[expression] = value
        return value

    def function(self, expression: str) -> Callable[..., Any]:
        """An expression over the open sizes, as a function of them in the order of `values`."""
        return self._function(f"return {expression}")

    def guard(self, first: int = 0) -> Callable[..., tuple[int, int] | None]:
        """A function of sizes: None if they have the same decisions from the given one on, else the
        index and the value of the first decision that differs."""
        decisions = [*enumerate(self.decisions.items())][first:]
        lines = [f"if (v := {text}) != {value}: return {i}, v" for i, (text, value) in decisions]
        return self._function(*lines, "return None")

    def _function(self, *lines: str) -> Callable[..., Any]:
        code = "\n    ".join([f"def of({', '.join(self.values)}):", *lines]) + "\n"
        return generated_code.function(code, "of", {"gcd": math.gcd}, "open sizes")


T = TypeVar("T")


class _Path:
    """What was made under a trace, and the paths that leave it, by their first other decision. Its
    guard covers the decisions that are no earlier path's; it is compiled when first needed."""

    def __init__(self, made: Any, trace: Trace, first: int):
        self.made, self.trace, self._first = made, trace, first
        self.others: dict[tuple[int, int], _Path] = {}

    @cached_property
    def guard(self) -> Callable[..., tuple[int, int] | None]:
        return self.trace.guard(self._first)


class GuardedCache(Generic[T]):
    """What was made for some sizes is found for all sizes for which its guard holds. The guards are
    a tree: code decides alike until sizes differ, so that a look-up evaluates each decision once.
    Beyond `most` entries it starts again. Threads may use it concurrently."""

    def __init__(self, most: int):
        self._most, self._adding = most, Lock()
        self._clear()

    def _clear(self) -> None:
        root = _Path(None, Trace({}), 0)
        root.guard = lambda *_: (-1, 0)
        self._count, self._root = 0, root

    def get(self, values: tuple[int, ...]) -> T | None:
        path, other = self._last(values)
        return None if other else path.made

    def add(self, trace: Trace, made: T) -> None:
        with self._adding:
            if self._count == self._most:
                self._clear()
            path, other = self._last(tuple(trace.values.values()))
            if other:  # else another thread has added it
                first = other[0] + 1
                if [*trace.decisions][:first] != [*path.trace.decisions][:first]:
                    first = 0  # the code has changed its mind: all decisions are this path's own
                path.others[other] = _Path(made, trace, first)
                self._count += 1

    def _last(self, values: tuple[int, ...]) -> tuple[_Path, tuple[int, int] | None]:
        """The last path that these sizes follow, and their decision that leaves it."""
        path = self._root
        while (other := path.guard(*values)) and other in path.others:
            path = path.others[other]
        return path, other


_Method = Callable[["SymbolicInt", Any], Any]


def _arithmetic(of: Callable[[int, int], int], sign: str) -> tuple[_Method, _Method]:
    """The methods of a binary operator; the second exchanges the operands."""

    def left(x: SymbolicInt, y: Any) -> SymbolicInt:
        return SymbolicInt(x.trace, of(x.value, _value(y)), f"({x.source} {sign} {source(y)})")

    def right(x: SymbolicInt, y: Any) -> SymbolicInt:
        return SymbolicInt(x.trace, of(_value(y), x.value), f"({source(y)} {sign} {x.source})")

    return left, right


def _comparison(of: Callable[[int, int], bool], sign: str) -> _Method:
    def decided(x: SymbolicInt, y: Any) -> bool:
        return bool(x.trace.decide(of(x.value, _value(y)), f"({x.source} {sign} {source(y)})"))

    return decided


class SymbolicInt:
    """An integer whose computation is recorded in a trace. It is not an `int`, so code that needs a
    plain integer has to convert it explicitly, which fixes the size."""

    __slots__ = ("source", "trace", "value")

    def __init__(self, trace: Trace, value: int, source: str):
        self.trace, self.value, self.source = trace, value, source

    __add__, __radd__ = _arithmetic(operator.add, "+")
    __sub__, __rsub__ = _arithmetic(operator.sub, "-")
    __mul__, __rmul__ = _arithmetic(operator.mul, "*")
    __floordiv__, __rfloordiv__ = _arithmetic(operator.floordiv, "//")
    __mod__, __rmod__ = _arithmetic(operator.mod, "%")
    __lt__, __le__ = _comparison(operator.lt, "<"), _comparison(operator.le, "<=")
    __gt__, __ge__ = _comparison(operator.gt, ">"), _comparison(operator.ge, ">=")

    def __eq__(self, other: object) -> bool:
        if other is None or (same := source(other)) == self.source:
            return other is not None
        decided = self.trace.decide(self.value == _value(other), f"({self.source} == {same})")
        return bool(decided)

    def __neg__(self) -> SymbolicInt:
        return 0 - self

    def __abs__(self) -> SymbolicInt:
        return self if self >= 0 else -self

    def __bool__(self) -> bool:
        return self != 0

    def bit_length(self) -> int:
        return self.trace.decide(self.value.bit_length(), f"{self.source}.bit_length()")

    def gcd(self, other: int) -> int:
        return self.trace.decide(math.gcd(self.value, other), f"gcd({self.source}, {other})")

    def fixed(self) -> int:
        """The value as a plain integer; for values that many sizes share, as a number of tiles."""
        return self.trace.decide(self.value, self.source)

    def __index__(self) -> int:
        raise TypeError(f"an open size, {self.source}, as a plain number or text")

    def __format__(self, how: str) -> str:
        printed = _printed.get()
        value = self.fixed() if printed == "fixed" else self.value
        return format(value if printed else int(self), how)

    def __repr__(self) -> str:
        return format(self)


def source(value: Any) -> str:
    """The expression of an integer, open or plain, or of a tuple of integers."""
    if isinstance(value, SymbolicInt):
        return value.source
    if isinstance(value, tuple):
        return f"({''.join(f'{source(v)}, ' for v in value)})"
    return repr(operator.index(value))


def fixed(value: Any) -> int:
    """The value of an open or plain integer as a plain integer."""
    return value.fixed() if isinstance(value, SymbolicInt) else value


def _value(value: Any) -> int:
    return value.value if isinstance(value, SymbolicInt) else value


class SymbolicStruct:
    """The bytes of a kernel's struct of integers, some of which are open sizes."""

    __slots__ = ("size", "source")

    def __init__(self, format: str, numbers: Sequence[Any]):
        self.size = calcsize(format)
        self.source = f"pack({format!r}, {', '.join(map(source, numbers))})"
