"""The source of a function with all definitions of this package that it uses."""

from __future__ import annotations

import inspect
import textwrap
from types import FunctionType, ModuleType
from typing import Any

import torch

from .host import CannotExtend

OURS = __name__.partition(".")[0]
PLAIN = (bool, int, float, str, torch.dtype)


def source_of(function: Any, name: str) -> str:
    """A module that defines `function` as `name`, and imports only PyTorch and the standard
    library.

    Raises:
        CannotExtend: it uses something other than functions, modules and plain values.
    """
    if not _ours(function):
        return (
            f"import {function.__module__}\n\n{name} = {function.__module__}.{function.__name__}\n"
        )
    closure = _Closure({}, {})
    closure.follow(inspect.unwrap(function), function.__name__)
    lines = [*sorted(closure.imports.values()), "", *closure.definitions.values()]
    if function.__name__ != name:
        lines.append(f"\n{name} = {function.__name__}")
    return "\n".join(lines) + "\n"


class _Closure:
    def __init__(self, imports: dict[str, str], definitions: dict[str, str]):
        self.imports, self.definitions = imports, definitions

    def follow(self, function: FunctionType, name: str) -> None:
        """Add a function's definition after those that it needs."""
        if name in self.definitions:
            return
        self.definitions[name] = ""  # for recursive functions
        for used in _names(function):
            if used in function.__globals__:
                self._value(used, function.__globals__[used])
        del self.definitions[name]
        self.definitions[name] = "\n" + textwrap.dedent(inspect.getsource(function))

    def _value(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            short = value.__name__ == name
            self.imports[name] = f"import {value.__name__}" + ("" if short else f" as {name}")
        elif _plain(value):
            self.definitions.setdefault(name, f"{name} = {value!r}")
        elif not _ours(value):
            self.imports[name] = f"from {value.__module__} import {value.__name__} as {name}"
        elif isinstance(inspect.unwrap(value), FunctionType):
            self.follow(inspect.unwrap(value), name)
        else:
            raise CannotExtend(f"{name}, which the operator in PyTorch needs, is not a function")


def _names(function: FunctionType) -> list[str]:
    """Global names that a function uses, including in inner functions and decorators."""
    codes, names = [function.__code__], list[str]()
    for code in codes:
        names += code.co_names
        codes += [c for c in code.co_consts if inspect.iscode(c)]
    decorators = inspect.getsource(function).partition("def ")[0]
    names += decorators.replace("@", " ").replace(".", " ").split()
    return list(dict.fromkeys(names))


def _plain(value: Any) -> bool:
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(_plain(k) and _plain(v) for k, v in value.items())
    return value is None or isinstance(value, PLAIN)


def _ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == OURS
