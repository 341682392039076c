"""Whether two functions compute the same, judged by their code and the code of all that they call.

Modeling files contain all their code, helpers included: two functions may have identical text and
call helpers of the same name that differ. A function is therefore compared with everything that its
code reads: functions behind global names, and methods and properties of its class. Other values,
such as classes or modules of torch, are equal if they are the same object.
"""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Essence:
    """What determines a function's results: its own code and defaults, and the value of each name
    that the code reads."""

    own: tuple[Any, ...]
    reads: tuple[tuple[str, Any], ...]


def essence(function: Any, owner: type | None = None) -> Essence | None:
    """The essence of a Python function, without its wrappers; None for anything else.

    Args:
        owner: the class of which it is a method.
    """
    return _essence(function, owner, ())


def difference(one: Essence | None, other: Essence | None) -> str | None:
    """None if two functions are the same; else "", or the first name that has different values in
    equal code."""
    if one is None or other is None or one.own != other.own:
        return ""
    mine, theirs = dict(one.reads), dict(other.reads)
    names = sorted(mine.keys() | theirs.keys())
    return next(
        (n for n in names if n not in mine or n not in theirs or mine[n] != theirs[n]), None
    )


def _essence(function: Any, owner: type | None, around: tuple[CodeType, ...]) -> Essence | None:
    f = inspect.unwrap(function)
    code = getattr(f, "__code__", None)
    if code is None:
        return None
    if code in around:  # a recursive call
        return Essence((), ())
    around = (*around, code)
    read, attributes = _names_in(code)
    cells = dict(zip(code.co_freevars, (c.cell_contents for c in f.__closure__ or ()), strict=True))
    behind = {name: f.__globals__[name] for name in read if name in f.__globals__} | cells
    if owner is not None:
        members = {name: inspect.getattr_static(owner, name, None) for name in attributes}
        behind |= {f".{name}": value for name, value in members.items() if value is not None}
    defaults = (*(f.__defaults__ or ()), *sorted((f.__kwdefaults__ or {}).items()))
    return Essence(
        (*_stripped(code), _comparable(defaults, owner, around)),
        tuple((name, _comparable(behind[name], owner, around)) for name in sorted(behind)),
    )


def _comparable(value: Any, owner: type | None, around: tuple[CodeType, ...]) -> Any:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)  # a static or class method
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] != "torch":
        return _essence(value, owner, around)
    if isinstance(value, logging.Logger):  # each file has its own logger
        return logging.Logger
    if isinstance(value, tuple):
        return tuple(_comparable(v, owner, around) for v in value)
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return type(value), value
    return _Same(value)


@dataclass(frozen=True, eq=False)
class _Same:
    """Compares by identity of the value."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@cache
def _stripped(code: CodeType) -> tuple[Any, ...]:
    """The code without its docstring (co_consts[0]) and line numbers."""
    first, *rest = code.co_consts or (None,)
    consts = (None if isinstance(first, str) else first, *rest)
    inner = tuple(_stripped(c) if isinstance(c, CodeType) else (type(c), c) for c in consts)
    return code.co_code, code.co_names, code.co_varnames, inner


@cache
def _names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that code looks up as globals and as attributes."""
    names: set[str] = set()
    attributes: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(step.argval)
    for inner in (c for c in code.co_consts if isinstance(c, CodeType)):
        some, more = _names_in(inner)
        names |= some
        attributes |= more
    return names, attributes


def keyword_values(function: Callable[..., Any], name: str) -> Iterator[Any]:
    """The values that a function's code passes as the keyword argument `name` of calls: the number,
    if it is one and the last argument, else an Ellipsis."""
    code, before = inspect.unwrap(function).__code__, None
    for step in dis.get_instructions(code):
        # Python 3.11 does not resolve KW_NAMES
        names = code.co_consts[step.arg] if step.opname == "KW_NAMES" else step.argval
        if isinstance(names, tuple) and name in names:
            number = before is not None and isinstance(before.argval, int)
            yield before.argval if number and names[-1] == name else ...
        before = step
