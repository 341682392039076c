"""Whether two functions compute the same, by their code and by that of all that they call.

A modeling file is written out in full, helpers included: two functions may be word for word the
same and call helpers of one name that are not. So a function is compared with everything that its
code reads: functions behind global names, and methods and properties of its class. What is
neither, a class or a module of torch say, is the same where it is the same object.
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
    """What a function computes: its own code and defaults, and what stands behind each name that
    the code reads."""

    own: tuple[Any, ...]
    reads: tuple[tuple[str, Any], ...]


def essence(function: Any, owner: type | None = None) -> Essence | None:
    """The essence of a Python function, whatever it is wrapped in; None of anything else.

    Args:
        owner: the class whose method it is.
    """
    return _essence(function, owner, ())


def difference(one: Essence | None, other: Essence | None) -> str | None:
    """None where two functions are the same; else "", or the name behind which the same code has
    something else."""
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
    if code in around:  # it calls itself
        return Essence((), ())
    around = (*around, code)
    read, attributes = _read(code)
    cells = dict(zip(code.co_freevars, (c.cell_contents for c in f.__closure__ or ()), strict=True))
    behind = {name: f.__globals__[name] for name in read if name in f.__globals__} | cells
    if owner is not None:
        found = {name: inspect.getattr_static(owner, name, None) for name in attributes}
        behind |= {f".{name}": value for name, value in found.items() if value is not None}
    defaults = (*(f.__defaults__ or ()), *sorted((f.__kwdefaults__ or {}).items()))
    return Essence(
        (*_written(code), _meaning(defaults, owner, around)),
        tuple((name, _meaning(behind[name], owner, around)) for name in sorted(behind)),
    )


def _meaning(value: Any, owner: type | None, around: tuple[CodeType, ...]) -> Any:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)  # a static or class method
    if isinstance(value, FunctionType) and value.__module__.partition(".")[0] != "torch":
        return _essence(value, owner, around)
    if isinstance(value, logging.Logger):  # each file has its own
        return logging.Logger
    if isinstance(value, tuple):
        return tuple(_meaning(v, owner, around) for v in value)
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return type(value), value
    return _Same(value)


@dataclass(frozen=True, eq=False)
class _Same:
    """Equal to what holds the same object."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@cache
def _written(code: CodeType) -> tuple[Any, ...]:
    """Code without its docstring, whose place is co_consts[0], and without its lines."""
    first, *rest = code.co_consts or (None,)
    consts = (None if isinstance(first, str) else first, *rest)
    inner = tuple(_written(c) if isinstance(c, CodeType) else (type(c), c) for c in consts)
    return code.co_code, code.co_names, code.co_varnames, inner


@cache
def _read(code: CodeType) -> tuple[set[str], set[str]]:
    """Names that code looks up among the globals of its module, and as attributes."""
    names: set[str] = set()
    attributes: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(step.argval)
    for inner in (c for c in code.co_consts if isinstance(c, CodeType)):
        some, more = _read(inner)
        names |= some
        attributes |= more
    return names, attributes


def keyword_values(function: Callable[..., Any], name: str) -> Iterator[Any]:
    """What a function's code gives an argument of calls by keyword, where that is a number and the
    last argument; else an Ellipsis."""
    code, before = inspect.unwrap(function).__code__, None
    for step in dis.get_instructions(code):
        # 3.11 does not show what KW_NAMES means
        names = code.co_consts[step.arg] if step.opname == "KW_NAMES" else step.argval
        if isinstance(names, tuple) and name in names:
            number = before is not None and isinstance(before.argval, int)
            yield before.argval if number and names[-1] == name else ...
        before = step
