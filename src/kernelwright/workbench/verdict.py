"""What a judgement comes to, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kernelwright.contract.compare import Verdict as Comparison

from .verify import usage

ARBITRARY = (
    "A kernel is arbitrary code. It runs in a process of its own, with limits of time and memory: "
    "that keeps out accidents and cheating, not malice. Judge what you would run."
)


@dataclass(frozen=True)
class CaseOutcome:
    """The kernel on one case.

    Attributes:
        outcome: "pass", "wrong" (a check objects), "error" (it crashed, hung or raised what is no
            refusal) or "refused" (it said in words that it does not take this).
        check: the check that objects.
        lines: of the user's files that an exception went through.
        worst: the comparison that used most of its budget.
        command: tries this case again, with the same values.
        capture: why it cannot be captured in a CUDA graph, or "".
        thorough: every check ran, not only those that take one call.
    """

    case: str
    outcome: str
    check: str
    why: str
    lines: tuple[str, ...]
    numel: int
    worst: Comparison | None
    command: str
    capture: str = ""
    thorough: bool = False


@dataclass(frozen=True)
class Verdict:
    """A judged kernel.

    Attributes:
        target: "my_kernel.py:fn".
        operator: what it is judged as; `what` is how the user named that.
        device: "cuda", or "cpu", where nothing is timed.
        seed: of all values.
        left_out: cases that did not run, counted by the reason.
        held: arguments that it does not take, and the value that its cases have.
        checked: how many cases each check looked at.
        languages: kernel languages that it has imported.
        command: judges it again.
    """

    target: str
    operator: str
    what: str
    device: str
    seed: int
    outcomes: tuple[CaseOutcome, ...]
    left_out: dict[str, int]
    held: dict[str, Any]
    checked: dict[str, int]
    languages: tuple[str, ...]
    command: str
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[CaseOutcome, ...]:
        """What is wrong or crashed, smallest first."""
        found = [o for o in self.outcomes if o.outcome in ("wrong", "error")]
        return tuple(sorted(found, key=lambda o: o.numel))

    @property
    def smallest(self) -> CaseOutcome | None:
        """The smallest failing case; one that a check names before one that crashed."""
        return min(self.failures, key=lambda o: (o.outcome == "error", o.numel), default=None)

    @property
    def passed(self) -> tuple[CaseOutcome, ...]:
        return tuple(o for o in self.outcomes if o.outcome == "pass")

    @property
    def refused(self) -> tuple[CaseOutcome, ...]:
        return tuple(o for o in self.outcomes if o.outcome == "refused")

    @property
    def worst(self) -> CaseOutcome | None:
        """The passing case that used most of its budget of errors."""
        return max(self.passed, key=lambda o: usage(o.worst), default=None)

    @property
    def outcome(self) -> str:
        """ "right", "wrong", or "nothing": no case was taken."""
        if self.failures:
            return "wrong"
        return "right" if self.passed else "nothing"

    @property
    def exit_code(self) -> int:
        """0 right, 1 wrong, 3 nothing could run."""
        return {"right": 0, "wrong": 1, "nothing": 3}[self.outcome]

    def as_json(self) -> dict[str, Any]:
        """As data, the smallest failing case by itself."""
        return {
            **asdict(self),
            "outcome": self.outcome,
            "exit": self.exit_code,
            "smallest": asdict(self.smallest) if self.smallest else None,
        }
