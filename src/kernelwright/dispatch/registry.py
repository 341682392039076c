"""The registry of ladders. A ladder registers itself when its module is imported (`ops.every`
imports all); all other code looks operators up here."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.contract import Ladder
from kernelwright.support.errors import UserError

_ladders: dict[str, Ladder] = {}


class UnknownOperator(UserError, ValueError):
    """Kernelwright has no operator of the given name."""


def register(ladder: Ladder) -> None:
    assert ladder.name not in _ladders, ladder.name
    _ladders[ladder.name] = ladder


def arrange(modules: Sequence[str]) -> None:
    """Put the ladders of these modules first, in this order, whatever was imported first."""
    place = {module: i for i, module in enumerate(modules)}
    arranged = sorted(_ladders.values(), key=lambda x: place.get(x.package, len(place)))
    _ladders.clear()
    _ladders.update((x.name, x) for x in arranged)


def ladders() -> tuple[Ladder, ...]:
    """All imported ladders; a backward follows its forward."""
    return tuple(_ladders.values())


def known(name: str) -> bool:
    """Whether the ladder of an operator is imported."""
    return name in _ladders


def ladder(name: str) -> Ladder:
    try:
        return _ladders[name]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name, _ladders, 3, 0.7)
        known = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_ladders)}"
        raise UnknownOperator(f"operator {name!r}: there is no such operator; {known}") from None
