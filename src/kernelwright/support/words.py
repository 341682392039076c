"""Numbers in messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """ "1 element", "2,000 elements": a count with its noun in singular or plural."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def are(count: int) -> str:
    return "is" if count == 1 else "are"
