"""Open sizes: integers that remember how they were computed, so that one plan serves every size.

Selection and planning are ordinary Python over the sizes of a call. Given an `OpenSize` in place of
a batch size, they compute with its present value, and what they compute carries its source: the
expression over the open sizes. Where the code takes a decision (a comparison, a rounding to a power
of two), the decision becomes a condition of the trace: for other sizes that fulfil all conditions,
the same code would have taken the same path. Where the code needs a plain integer (an index, part
of a kernel's name), the size is fixed: the condition is that it has this value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.support import generated_code


class NotOpen(Exception):
    """Something computed from an open size needs the size itself."""


class Trace:
    """The open sizes of one call, by name, and the conditions that its planning has relied on."""

    def __init__(self, values: dict[str, int]):
        self.values = values
        self.conditions: dict[str, None] = {}  # in order, each once

    def size(self, name: str) -> OpenSize:
        return OpenSize(self, self.values[name], name)

    def holds(self) -> Callable[..., bool]:
        """Whether the conditions hold for other sizes, in the order of `values`."""
        listed = ", ".join(self.values)
        # first those that tell plans apart: a size between two powers of two
        ordered = sorted(self.conditions, key=lambda c: c.count("<") < 2)
        conditions = " and ".join(ordered) or "True"
        source = f"def holds({listed}):\n    return {conditions}\n"
        return generated_code.function(source, "holds", {}, "open sizes")


class OpenSize:
    """An integer of a trace. Not an `int`, so that code that needs one has to say so, which fixes
    the size."""

    __slots__ = ("source", "trace", "value")

    def __init__(self, trace: Trace, value: int, source: str):
        self.trace, self.value, self.source = trace, value, source

    def _made(self, value: int, source: str) -> OpenSize:
        return OpenSize(self.trace, value, source)

    def _decided(self, outcome: bool, condition: str) -> bool:
        self.trace.conditions[condition if outcome else f"not {condition}"] = None
        return outcome

    def _plain(self, *_: Any) -> Any:
        raise NotOpen(self.source)

    # arithmetic
    def __add__(self, other: Any) -> OpenSize:
        return self._made(self.value + _value(other), f"({self.source} + {source(other)})")

    def __radd__(self, other: Any) -> OpenSize:
        return self._made(_value(other) + self.value, f"({source(other)} + {self.source})")

    def __sub__(self, other: Any) -> OpenSize:
        return self._made(self.value - _value(other), f"({self.source} - {source(other)})")

    def __rsub__(self, other: Any) -> OpenSize:
        return self._made(_value(other) - self.value, f"({source(other)} - {self.source})")

    def __mul__(self, other: Any) -> OpenSize:
        if type(other) is int and other == 1:
            return self
        return self._made(self.value * _value(other), f"({self.source} * {source(other)})")

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> OpenSize:
        return self._made(self.value // _value(other), f"({self.source} // {source(other)})")

    def __rfloordiv__(self, other: Any) -> OpenSize:
        return self._made(_value(other) // self.value, f"({source(other)} // {self.source})")

    def __mod__(self, other: Any) -> OpenSize:
        return self._made(self.value % _value(other), f"({self.source} % {source(other)})")

    def __neg__(self) -> OpenSize:
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
        if not isinstance(other, (int, OpenSize)):
            return other is not None and self._plain()
        same = source(other)
        if same == self.source:
            return True
        return self._decided(self.value == _value(other), f"({self.source} == {same})")

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __bool__(self) -> bool:
        return self != 0

    def bit_length(self) -> int:
        """A plain integer: the size is known to lie between two powers of two."""
        n = self.value.bit_length()
        self._decided(True, f"({1 << n >> 1} <= {self.source} < {1 << n})")
        return n

    __hash__ = __index__ = __int__ = __float__ = __repr__ = __format__ = _plain
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = _plain
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __divmod__ = __rdivmod__ = _plain


def source(value: Any) -> str:
    """An integer, open or not, as an expression."""
    return value.source if isinstance(value, OpenSize) else repr(int(value))


def _value(value: Any) -> int:
    return value.value if isinstance(value, OpenSize) else value
