"""Which ladders there are. `ops` fills it at import; everything else looks operators up here."""

from __future__ import annotations

from kernelwright.contract import Ladder
from kernelwright.support.errors import UserError

_ladders: dict[str, Ladder] = {}


class UnknownOperator(UserError, ValueError):
    """An operator was named that Kernelwright does not have."""


def register(ladder: Ladder) -> None:
    assert ladder.name not in _ladders, ladder.name
    _ladders[ladder.name] = ladder


def ladders() -> tuple[Ladder, ...]:
    """Every ladder, in the order of `ops/__init__.py`; a backward follows its forward."""
    return tuple(_ladders.values())


def ladder(name: str) -> Ladder:
    try:
        return _ladders[name]
    except KeyError:
        known = ", ".join(_ladders)
        raise UnknownOperator(
            f"operator {name!r}: there is no such operator; there are {known}"
        ) from None
