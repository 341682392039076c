"""A model's sizes: checks, and presets with changes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any


def positive(config: Any, *names: str) -> None:
    """Raise ValueError if a size is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}: must be at least 1, is {getattr(config, name)}")


def not_negative(config: Any, *names: str) -> None:
    """Raise ValueError if a value is below 0."""
    for name in names:
        if not getattr(config, name) >= 0:
            raise ValueError(f"{name}: must not be negative, is {getattr(config, name)}")


def divides(config: Any, divisor: str, dividend: str) -> None:
    """Raise ValueError if one size is not a multiple of the other."""
    small, large = getattr(config, divisor), getattr(config, dividend)
    if large % small:
        raise ValueError(f"{dividend}: must be a multiple of {divisor} ({small}), is {large}")


def probability(config: Any, name: str) -> None:
    """Raise ValueError if a value is below 0, or 1 or above."""
    if not 0.0 <= getattr(config, name) < 1.0:
        raise ValueError(f"{name}: must be at least 0 and less than 1, is {getattr(config, name)}")


def changed(config: Any, what: str, changes: dict[str, Any]) -> Any:
    """A config with some of its fields changed.

    Raises:
        ValueError: `what` has no such field, or the sizes do not fit together.
    """
    if unknown := set(changes) - {f.name for f in fields(config)}:
        raise ValueError(f"{what} has no size {', '.join(sorted(unknown))}")
    return replace(config, **changes)
