"""Fixtures of several files."""

import pytest

from kernelwright.dispatch import dynamic_shapes


@pytest.fixture
def served(monkeypatch):
    """The (operator, rung) names that are bound; use an unusual shape, so that a call is bound."""
    seen = []

    def spy(self, args, rung):
        seen.append((self._ladder.name, rung))
        return launcher(self, args, rung)

    launcher = dynamic_shapes.OpenCalls.launcher
    monkeypatch.setattr(dynamic_shapes.OpenCalls, "launcher", spy)
    return seen
