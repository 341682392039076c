"""Fixtures of several files."""

import pytest

from kernelwright.dispatch import open_calls


@pytest.fixture
def served(monkeypatch):
    """The (operator, rung) names that are bound; use an unusual shape, so that a call is bound."""
    seen = []

    def spy(self, args, rung):
        seen.append((self._ladder.name, rung))
        return launcher(self, args, rung)

    launcher = open_calls.OpenCalls.launcher
    monkeypatch.setattr(open_calls.OpenCalls, "launcher", spy)
    return seen
