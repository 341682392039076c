"""The operands of `compare`: rungs, operators, functions and commits, by name.

softmax.cuda_warp          a rung of this checkout
softmax                    the rung dispatched by default for each case
softmax.cuda_warp@HEAD~3   the rung as of another commit (see git_version.py)
my.py:fn                   a Python function that takes the operator's arguments in order
@HEAD~3                    every operator of a commit; "." for this checkout
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import Ladder, Rung
from kernelwright.dispatch import UnknownOperator, ladder, ladders, proof
from kernelwright.machine import here
from kernelwright.support import imports
from kernelwright.support.errors import UsageError
from kernelwright.workbench.judge.call_signature import binding
from kernelwright.workbench.judge.sandbox.loading import parameters_of
from kernelwright.workbench.judge.spec import subject_of
from kernelwright.workbench.listing import named

from . import git_version

THIS = "kernelwright"


@dataclass(frozen=True)
class Bound:
    """A side prepared for given arguments: `call` takes the operator's arguments in order. If there
    is no `call`, `why` states the reason; if only a GPU is missing, `kernels` is the rung to
    compile and inspect instead, "softmax.cuda_warp". `failed`: whether it raised an exception."""

    rung: str
    call: Callable[..., Any] | None = None
    why: str = ""
    kernels: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: as the user wrote it.
        operator: the operator that it computes.
        runner: given the operator's arguments by name, returns the `Bound` for such arguments.
        package: the import name of the Kernelwright that it belongs to; "" for a function.
    """

    name: str
    operator: str
    runner: Callable[[dict[str, Any]], Bound]
    package: str = ""


def pairs(a: str, b: str, as_: str | None, ops: Iterable[str]) -> list[tuple[Side, Side]]:
    """The comparisons that two names stand for, one per operator.

    Args:
        as_: the operator that a function computes.
        ops: for two whole commits, the operators to compare; by default those that differ.

    Raises:
        UsageError, UnknownOperator, UnknownRung: a name does not exist.
    """
    whole = [_whole(text) for text in (a, b)]
    if all(whole):
        homes = [_package(text) for text in (a, b)]
        names = [x.name for x in named(ops)] if ops else changed(*homes)
        return [(_side(n + _at(a), None), _side(n + _at(b), None)) for n in names]
    if any(whole):
        raise UsageError("A B: only one of them names an operator; name one in both or in neither")
    if ops:
        raise UsageError("--op: is for two whole commits, as in: compare @HEAD~3 . --op softmax")
    named_as = as_ or next((n for n in map(_operator, (a, b)) if n), None)
    one, other = _side(a, named_as), _side(b, named_as)
    if one.operator != other.operator:
        raise UsageError(f"A B: {a} computes {one.operator}, and {b} computes {other.operator}")
    return [(one, other)]


def changed(a: str, b: str) -> list[str]:
    """Operators that both packages have and whose rungs' sources, selection or tables differ."""
    theirs = {x.name: _fingerprint(b, x) for x in _dispatch(b).ladders()}
    ours = {x.name: _fingerprint(a, x) for x in _dispatch(a).ladders()}
    return [
        x.name
        for x in ladders()
        if x.name in ours and x.name in theirs and theirs[x.name] != ours[x.name]
    ]


def _fingerprint(package: str, lad: Any) -> list[str]:
    """The code that determines an operator's kernels and their selection, without comments."""
    texts = [text for rung in lad.rungs for text in proof.parts(lad, rung, package)]
    names = ("__init__.py", "heuristics.py", "choose.py")  # the last in commits before 2026-11-23
    files = [lad.folder / name for name in names if (lad.folder / name).is_file()]
    texts += [imports.code(path).replace(package, THIS) for path in files]
    data = Path(importlib.import_module(package).__path__[0]) / "data" / "tuned"
    paths = sorted(p for d in (data, lad.folder / "tuned") for p in d.glob(f"{lad.name}.sm_*"))
    return [*texts, *(p.read_text(encoding="utf-8") for p in paths)]


def of_rung(name: str, lad: Ladder, rung: Rung | None, package: str = THIS) -> Side:
    """The side for a ladder's rung, or for the dispatched one."""
    house = _dispatch(package)
    normalise = importlib.import_module(f"{package}.contract.layout").normalise
    device = here()

    def runner(args: dict[str, Any]) -> Bound:
        specs, _ = normalise(lad.operator.layout, house.specs_of(args))
        if rung is not None:
            chosen = rung
        elif device.type == "cuda":
            chosen = house.select(lad, specs, device, None).rung
        else:  # the rung dispatched on the machine whose records are shipped
            h200 = importlib.import_module(f"{package}.contract").H200
            listing = importlib.import_module(f"{package}.workbench.listing")
            chosen = lad.rung(listing.serving(lad, h200, specs))
        if device.type != "cuda" and chosen.is_gpu:
            return Bound(chosen.name, None, "needs a GPU to be timed", f"{lad.name}.{chosen.name}")
        why = house.unsupported(chosen, specs, device)
        if why:
            return Bound(chosen.name, None, why)
        return Bound(chosen.name, house.launcher(lad, args, chosen.name))

    return Side(name, lad.name, runner, package)


def _side(text: str, as_: str | None) -> Side:
    if ".py:" in text:
        return _function(text, as_)
    what, _, _ = text.partition("@")
    package = _package(text)
    house = _dispatch(package)
    lads = {x.name: x for x in house.ladders()}
    operator, _, rung = what.rpartition(".")
    if what in lads:
        lad, chosen = lads[what], None
    elif operator in lads:
        lad, chosen = lads[operator], _rung(lads[operator], rung, text)
    else:
        known = ", ".join(lads)
        raise UnknownOperator(
            f"{text}: there is no operator {operator or what!r}; there are {known}"
        )
    schema = ladder(lad.name).operator.schema
    if lad.operator.schema != schema:
        raise UsageError(f"{text}: its schema is {lad.operator.schema}, but here it is {schema}")
    return of_rung(text, lad, chosen, package)


def _rung(lad: Any, name: str, text: str) -> Any:
    if name not in lad.names:
        has = ", ".join(lad.names)
        raise UsageError(f"{text}: {lad.name} has no rung {name!r}; it has {has}")
    return lad.rung(name)


def _function(text: str, as_: str | None) -> Side:
    """A function of a file. Its Python code runs in this process: compare trusts both sides."""
    path, _, name = text.rpartition(":")
    if as_ is None:
        raise UsageError(f"--as: name the operator that {text} computes")
    operator = ladder(as_).operator
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{text}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"_compared_{file.stem}", file)
    assert spec and spec.loader, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    fn = getattr(module, name, None)
    if not callable(fn):
        raise UsageError(f"{text}: {path} has no function {name!r}")
    given, held = binding(subject_of(ladder(as_)), parameters_of(fn), False)
    names = [a.name for a in operator.args]

    def runner(args: dict[str, Any]) -> Bound:
        lacking = [n for n, v in held.items() if args[n] != v]
        if lacking:
            return Bound(name, None, f"it takes no {lacking[0]}, which is {args[lacking[0]]} here")
        if given({n: n for n in names}) == {"listed": names, "named": {}}:
            return Bound(name, fn)

        def call(*values: Any) -> Any:
            taken = given(dict(zip(names, values, strict=True)))
            return fn(*taken["listed"], **taken["named"])

        return Bound(name, call)

    return Side(text, operator.name, runner)


def _operator(text: str) -> str | None:
    """The operator that is part of a name."""
    if ".py:" in text:
        return None
    what = text.partition("@")[0]
    names = {x.name for x in ladders()}
    return next((n for n in (what, what.rpartition(".")[0]) if n in names), None)


def _whole(text: str) -> bool:
    return text == "." or text.startswith("@")


def _at(text: str) -> str:
    return "" if text == "." else text


def _package(text: str) -> str:
    """The import name of the Kernelwright of a side."""
    at = text.partition("@")[2]
    return git_version.package(git_version.resolve(at)) if at else THIS


def _dispatch(package: str) -> ModuleType:
    return sys.modules[f"{package}.dispatch"]
