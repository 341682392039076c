"""Reads the fields of a JSON object, with errors that name the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .errors import RequestError


class Fields:
    """The fields of a request's JSON object. Each is taken once; null is as if it were absent.

    Raises:
        RequestError: the document is not an object.
    """

    def __init__(self, document: object, name: str = "the body"):
        if not isinstance(document, dict):
            raise RequestError(400, f"{name}: must be a JSON object")
        self._left = {k: v for k, v in document.items() if v is not None}

    def take(self, name: str) -> Any:
        """A field's value, or None."""
        return self._left.pop(name, None)

    def boolean(self, name: str, usual: bool = False) -> bool:
        value = self.take(name)
        if value is None:
            return usual
        if not isinstance(value, bool):
            raise wrong(name, "true or false", value)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if not is_integer(value) or not low <= value <= high:
            raise wrong(name, f"an integer from {low} to {high}", value)
        return value

    def number(self, name: str, usual: float) -> float:
        value = self.take(name)
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(name, "a number", value)
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise RequestError(400, f"{name}: must be finite", name)
        return value

    def text(self, name: str) -> str | None:
        value = self.take(name)
        return None if value is None else valid_text(name, value)

    def end(self, neutral: Mapping[str, tuple[Any, ...]]) -> None:
        """Raise RequestError if a field is left.

        Args:
            neutral: fields that are known but not supported: the values that ask for nothing.
        """
        for name, value in self._left.items():
            if name not in neutral:
                raise RequestError(400, f"{name}: is not a known field", name, "unknown_field")
            if not any(type(value) is type(n) and value == n for n in neutral[name]):
                only = " or ".join(repr(n) for n in neutral[name]) or "null"
                message = f"{name}: is not supported; the only accepted value is {only}"
                raise RequestError(400, message, name, "unsupported_field")


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def valid_text(name: str, value: object) -> str:
    """The value, a string that UTF-8 can represent; JSON can write halves of characters."""
    if not isinstance(value, str):
        raise wrong(name, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        message = f"{name}: contains a surrogate, which is no character"
        raise RequestError(400, message, name) from None
    return value


def wrong(name: str, kind: str, value: object) -> RequestError:
    written = repr(value)
    written = written if len(written) <= 80 else f"{written[:77]}..."
    return RequestError(400, f"{name}: must be {kind}, is {written}", name)
