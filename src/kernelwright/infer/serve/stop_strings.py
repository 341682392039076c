"""Ends a text at the first of some strings, while the text comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes a text on up to the first stop string, whatever pieces it comes in.

    The text ends where the first stop string is complete; of several that are complete at the same
    character, the longest counts. A text that may be the beginning of one is held back.

    Args:
        stops: not empty strings.

    Attributes:
        stopped: whether a stop string has come.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops = stops
        self._held = ""
        self.stopped = False

    def add(self, piece: str) -> str:
        """The text that is certain now and was not before."""
        if self.stopped:
            return ""
        text = self._held + piece
        ends = [(at + len(s), at) for s in self._stops if (at := text.find(s)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        keep = max((_beginning(text, s) for s in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """What is held back, at the end of the text."""
        text, self._held = self._held, ""
        return text


def _beginning(text: str, stop: str) -> int:
    """The length of the longest end of the text with which a stop string begins."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
