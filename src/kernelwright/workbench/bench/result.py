"""The result of a bench run: records, and the rungs that were not timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelwright.contract import Case
from kernelwright.contract.compare import Accuracy
from kernelwright.machine import stats
from kernelwright.machine.timers import Track
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.verify.candidate import Expected

from .cpu_verification import WRONG_HERE


@dataclass(frozen=True)
class Skipped:
    """A rung that was not timed here, and why. `elsewhere` is its record on the H200, if any."""

    operator: str
    rung: str
    case: str
    why: str
    elsewhere: Record | None = None


class Guest(Protocol):
    """A candidate that is timed with a ladder but runs in another process."""

    @property
    def name(self) -> str: ...

    def enter(
        self, case: Case, want: Expected, sets: list[dict[str, Any]]
    ) -> tuple[Accuracy, Callable[[], Track]]:
        """Whether it is right on a case, and the function that prepares it for sampling with the
        sets of arguments."""
        ...


@dataclass
class BenchResult:
    """The results of a bench run.

    Attributes:
        skipped: the rungs that were not timed; "*" stands for all rungs of a case.
        run, environment: the run's id, and the machine and software it ran on, for `records.save`.
        noise: the A/A noise by (operator, case).
    """

    run: str
    environment: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    noise: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 good, 1 something was wrong or failed, 3 nothing could be timed."""
        if any(r.outcome != "pass" for r in self.records if ":" not in r.rung):
            return WRONG
        if any(s.why.startswith(WRONG_HERE) for s in self.skipped):
            return WRONG
        return GOOD if any(r.cold for r in self.records) else INCONCLUSIVE

    def compare(self, a: Record, b: Record) -> stats.Comparison:
        """Whether `a` is faster than `b` on one case of this run, given the A/A noise."""
        assert a.run == b.run == self.run and a.case == b.case, (a.key, b.key)
        noise = self.noise.get((a.operator, a.case), 0.0)
        spread = self.environment["clocks"].get(f"{a.operator} {a.case}", {}).get("spread", 0.0)
        return stats.compare(a.cold, b.cold, noise=noise, clock_spread=spread)
