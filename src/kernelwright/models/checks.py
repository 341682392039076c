"""Checks of a model's sizes."""

from __future__ import annotations

from typing import Any


def positive(config: Any, *names: str) -> None:
    """Raise ValueError where a size is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}: must be at least 1, is {getattr(config, name)}")


def divides(config: Any, divisor: str, dividend: str) -> None:
    """Raise ValueError where one size is no multiple of the other."""
    small, large = getattr(config, divisor), getattr(config, dividend)
    if large % small:
        raise ValueError(f"{dividend}: must be a multiple of {divisor} ({small}), is {large}")
