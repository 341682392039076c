"""Open sizes: integers that remember how they were computed, so that one plan serves every size.

Selection and planning are ordinary Python over the sizes of a call. Given a `SymbolicInt` in place
of a batch size, they compute with its present value, and what they compute carries its source: the
expression over the open sizes. Where the code makes a decision (a comparison, a rounding to a power
of two), the decision becomes a condition of the trace: for other sizes that fulfill all conditions,
the same code would have taken the same path. A plain integer that is the same for many sizes (a
common divisor, a number of tiles) is fixed: the condition is that it has this value, and
`GuardedCache` looks such values up. Code that needs the size itself (an index, part of a kernel's
name) raises NotOpen.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from struct import calcsize
from threading import Lock
from typing import Any, Generic, TypeVar

from kernelwright.support import generated_code


class NotOpen(Exception):
    """A computation needs the value of an open size as a plain number."""


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
    """The open sizes of one call, by name, and the facts that planning has relied on.

    Attributes:
        conditions: expressions that are true for these sizes, in order, without duplicates.
        fixed: the values of expressions that planning took as plain integers.
    """

    def __init__(self, values: dict[str, int]):
        self.values = values
        self.conditions: dict[str, None] = {}
        self.fixed: dict[str, int] = {}

    def size(self, name: str) -> SymbolicInt:
        return SymbolicInt(self, self.values[name], name)

    def fix(self, value: int, expression: str) -> int:
        self.fixed[expression] = value
        return value

    def holds(self) -> Callable[..., bool]:
        """A function of sizes in the order of `values`: whether the same plan serves them."""
        fixed = (f"{source} == {value}" for source, value in self.fixed.items())
        return self.function(" and ".join([*fixed, *self.conditions]) or "True")

    def key(self) -> Callable[..., Hashable]:
        """A function of sizes in the order of `values`: the values of the fixed expressions."""
        return self.function(f"({''.join(f'{source}, ' for source in self.fixed)})")

    def function(self, expression: str) -> Callable[..., Any]:
        """An expression over the open sizes, as a function of them."""
        code = f"def of({', '.join(self.values)}):\n    return {expression}\n"
        return generated_code.function(code, "of", {"gcd": math.gcd}, "open sizes")


T = TypeVar("T")
_ByValues = dict[Hashable, list[tuple[Callable[..., bool], T]]]


class GuardedCache(Generic[T]):
    """A cache: what was made for some sizes is found for all sizes for which its trace holds.
    Beyond `most` entries the oldest is dropped. Threads may use it concurrently."""

    def __init__(self, most: int):
        self._most = most
        # by the fixed expressions, with the function that computes them, then by their values
        self._made: dict[tuple[str, ...], tuple[Callable[..., Hashable], _ByValues[T]]] = {}
        self._places: deque[tuple[tuple[str, ...], tuple[int, ...]]] = deque()
        self._adding = Lock()

    def get(self, values: tuple[int, ...]) -> T | None:
        for key, by_values in tuple(self._made.values()):  # a copy: another thread may add entries
            for holds, made in by_values.get(key(*values), ()):
                if holds(*values):
                    return made
        return None

    def add(self, trace: Trace, made: T) -> None:
        names, fixed = tuple(trace.fixed), tuple(trace.fixed.values())
        with self._adding:
            if names not in self._made:
                self._made[names] = trace.key(), {}
            self._made[names][1].setdefault(fixed, []).append((trace.holds(), made))
            self._places.append((names, fixed))
            if len(self._places) > self._most:
                self._drop(*self._places.popleft())

    def _drop(self, names: tuple[str, ...], fixed: tuple[int, ...]) -> None:
        by_values = self._made[names][1]
        by_values[fixed].pop(0)
        if not by_values[fixed]:
            del by_values[fixed]
        if not by_values:
            del self._made[names]


class SymbolicInt:
    """An integer whose computation is recorded in a trace. It is not an `int`, so code that needs a
    plain integer has to convert it explicitly, which fixes the size."""

    __slots__ = ("source", "trace", "value")

    def __init__(self, trace: Trace, value: int, source: str):
        self.trace, self.value, self.source = trace, value, source

    def _made(self, value: int, source: str) -> SymbolicInt:
        return SymbolicInt(self.trace, value, source)

    def _decided(self, outcome: bool, condition: str) -> bool:
        self.trace.conditions[condition if outcome else f"not {condition}"] = None
        return outcome

    def _plain(self, *_: Any) -> Any:
        raise NotOpen(self.source)

    # arithmetic
    def __add__(self, other: Any) -> SymbolicInt:
        return self._made(self.value + _value(other), f"({self.source} + {source(other)})")

    def __radd__(self, other: Any) -> SymbolicInt:
        return self._made(_value(other) + self.value, f"({source(other)} + {self.source})")

    def __sub__(self, other: Any) -> SymbolicInt:
        return self._made(self.value - _value(other), f"({self.source} - {source(other)})")

    def __rsub__(self, other: Any) -> SymbolicInt:
        return self._made(_value(other) - self.value, f"({source(other)} - {self.source})")

    def __mul__(self, other: Any) -> SymbolicInt:
        if type(other) is int and other == 1:
            return self
        return self._made(self.value * _value(other), f"({self.source} * {source(other)})")

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> SymbolicInt:
        return self._made(self.value // _value(other), f"({self.source} // {source(other)})")

    def __rfloordiv__(self, other: Any) -> SymbolicInt:
        return self._made(_value(other) // self.value, f"({source(other)} // {self.source})")

    def __mod__(self, other: Any) -> SymbolicInt:
        return self._made(self.value % _value(other), f"({self.source} % {source(other)})")

    def __abs__(self) -> SymbolicInt:
        return self if self >= 0 else -self

    def __neg__(self) -> SymbolicInt:
        return self._made(-self.value, f"(-{self.source})")

    # decisions
    def __lt__(self, other: Any) -> bool:
        return self._decided(self.value < _value(other), f"({self.source} < {source(other)})")

    def __le__(self, other: Any) -> bool:
        return self._decided(self.value <= _value(other), f"({self.source} <= {source(other)})")

    def __gt__(self, other: Any) -> bool:
        return self._decided(self.value > _value(other), f"({self.source} > {source(other)})")

    def __ge__(self, other: Any) -> bool:
        return self._decided(self.value >= _value(other), f"({self.source} >= {source(other)})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, SymbolicInt)):
            return other is not None and self._plain()
        same = source(other)
        if same == self.source:
            return True
        return self._decided(self.value == _value(other), f"({self.source} == {same})")

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __bool__(self) -> bool:
        return self != 0

    # plain integers
    def bit_length(self) -> int:
        return self.trace.fix(self.value.bit_length(), f"{self.source}.bit_length()")

    def gcd(self, other: int) -> int:
        return self.trace.fix(math.gcd(self.value, other), f"gcd({self.source}, {other})")

    def fixed(self) -> int:
        """The value as a plain integer; for values that many sizes share, as a number of tiles."""
        return self.trace.fix(self.value, self.source)

    # text
    def __repr__(self) -> str:
        return repr(self._shown())

    def __format__(self, how: str) -> str:
        return format(self._shown(), how)

    def _shown(self) -> int:
        how = _printed.get()
        return self.value if how == "told" else self.fixed() if how == "fixed" else self._plain()

    __hash__ = __index__ = __int__ = __float__ = _plain
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = _plain
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __divmod__ = __rdivmod__ = _plain


def source(value: Any) -> str:
    """The expression of an integer, open or plain, or of a tuple of integers."""
    if isinstance(value, tuple):
        return f"({''.join(f'{source(v)}, ' for v in value)})"
    return value.source if isinstance(value, SymbolicInt) else repr(int(value))


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
