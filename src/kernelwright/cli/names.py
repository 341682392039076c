"""Names of operators and rungs on the command line, checked without importing torch."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from kernelwright.ops import PUBLIC
from kernelwright.support.errors import UsageError
from kernelwright.support.settings import CHECKOUT, DATA

Names = TypeVar("Names", str, list[str], None)


def known(names: Names) -> Names:
    """The names as given.

    Raises:
        UsageError: one of them is not an operator or rung; the message suggests close names.
    """
    for name in [names] if isinstance(names, str) else names or []:
        # a folder is checked when it is imported, a file when its kernel is built
        if "/" not in name and ".cu:" not in name:
            _check(name)
    return names


def complete(incomplete: str) -> list[str]:
    """Operators and rungs that begin with the typed text."""
    every = rungs()
    names = [*every, *(f"{op}.{rung}" for op, its_rungs in every.items() for rung in its_rungs)]
    return [n for n in names if n.startswith(incomplete)]


def rungs() -> dict[str, list[str]]:
    """Names of the rungs of each operator, from the source hashes in the package."""
    by_operator: dict[str, list[str]] = {name: [] for name in PUBLIC}
    for name in json.loads((DATA / "hashes.json").read_text(encoding="utf-8")):
        operator, _, rung = name.rpartition(".")
        by_operator.setdefault(operator, []).append(rung)
    return by_operator


def suggestion(name: str, among: Iterable[str]) -> str:
    """ "; did you mean softmax?", or "" if no name is close."""
    close = difflib.get_close_matches(name, list(among), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _written(rung: str) -> bool:
    """Whether a module of the operators contains the rung's name, with or without its backend. A
    checkout's rung may be newer than the hashes; its ladder is then checked later."""
    words = {f'"{rung}"', f'"{rung.partition("_")[2]}"'}
    modules = (Path(__file__).parents[1] / "ops").rglob("*.py")
    return any(word in text for m in modules if (text := m.read_text("utf-8")) for word in words)


def _check(name: str) -> None:
    every = rungs()
    parts = name.split(".")
    backward = parts[1:2] == ["backward"]
    operator, rung = ".".join(parts[: 1 + backward]), ".".join(parts[1 + backward :])
    if operator not in every:
        meant = suggestion(operator, every) or " (see kernelwright list)"
        raise UsageError(f"{name}: there is no operator {operator}{meant}")
    if rung and rung not in every[operator] and not (CHECKOUT and _written(rung)):
        meant = suggestion(rung, every[operator]) or " (see kernelwright list)"
        raise UsageError(f"{name}: {operator} has no rung {rung}{meant}")
