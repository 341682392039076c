"""The result of judging a kernel, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernelwright.contract import Case
from kernelwright.contract.compare import Accuracy
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.metrics import Table
from kernelwright.workbench.verify.checks import CHECKS, REPEATS
from kernelwright.workbench.verify.verify import usage

ARBITRARY = (
    "A kernel is arbitrary code. It runs in a separate process with limits on time and memory. "
    "This guards against accidents and cheating, not against malice: judge only code that you "
    "would run."
)


ON_A_GPU = {c.name for c in CHECKS if c.gpu}


@dataclass(frozen=True)
class Costs:
    """The launches and memory of a call.

    Attributes:
        case: the case on which they were determined.
        launches: kernels that a call launches; without a GPU, operators that would launch one.
        counted: how they were counted.
        moved: total bytes that these operators read and write; None if they are opaque.
        least: bytes that the operator must move.
        peak: bytes of GPU memory besides inputs and outputs; None without a GPU.
        timed: the case that was timed first; gpu_us, host_us: a call's time on it, on the GPU and
            on the host, by the parent's clock.
    """

    case: str
    launches: int
    counted: str
    moved: int | None
    least: int
    peak: int | None = None
    timed: str = ""
    gpu_us: float | None = None
    host_us: float | None = None

    def saves(self, captured: bool = True) -> list[str]:
        """What a fusion and a graph would save, in words. `captured`: it can be captured."""
        cannot = "CUDA graph: the function cannot be captured"
        return [self._fusion(), self._graph() if captured else cannot]

    def _fusion(self) -> str:
        if not self.launches:
            return "fusion: unknown, no PyTorch operator launches its work"
        if self.launches == 1:
            return "fusion: nothing, a call is one launch"
        if self.moved is None:
            return f"fusion: unknown, the traffic of its {self.launches} launches cannot be counted"
        if self.moved <= 1.05 * self.least:
            return f"fusion: no memory traffic, {self.launches} launches move the minimum"
        factor = metrics.times(self.moved / max(self.least, 1))
        return (
            f"fusion: {self.launches} launches move {metrics.size(self.moved)}, a fused one "
            f"would move {metrics.size(self.least)}: {factor} less"
        )

    def _graph(self) -> str:
        if not self.host_us or not self.gpu_us:
            return "CUDA graph: unknown, because it is timed only on a GPU"
        if self.host_us <= 1.1 * self.gpu_us:
            return f"CUDA graph: nothing, the host is ahead of the GPU on {self.timed}"
        host, gpu = map(metrics.microseconds, (self.host_us, self.gpu_us))
        return f"CUDA graph: the host takes {host} per call, the GPU {gpu}, on {self.timed}"


#: Kinds of failures, the worst first.
KINDS = {
    "race": "races and bounds",
    "special": "NaN and infinity",
    "numerics": "numerics",
    "behaviour": "behavior",
    "edge case": "edge cases",
    "layout": "layout",
}
EXIT_CODES = {"right": GOOD, "wrong": WRONG, "inconclusive": INCONCLUSIVE}


@dataclass(frozen=True)
class CaseOutcome:
    """The result of the kernel on one case.

    Attributes:
        outcome: "pass", "wrong" (a check failed), "error" (it crashed, hung or raised an exception
            other than a rejection), "refused" (its error states that it does not accept this),
            "edge" (it raised on an input without elements) or "unable" (it cannot be built or run
            on this machine).
        kind: the kind of a failure, one of `KINDS`.
        layout: for an input that passes, how a result's strides differ from PyTorch's.
        check: the check that failed.
        lines: the lines of the user's files in an exception's traceback.
        worst: the comparison that used most of its budget.
        command: repeats this case with the same values.
        capture: why it cannot be captured in a CUDA graph, or "".
        thorough: whether every check ran, or only those that need a single call.
    """

    case: str
    outcome: str
    check: str
    why: str
    lines: tuple[str, ...]
    numel: int
    worst: Accuracy | None
    command: str
    capture: str = ""
    thorough: bool = False
    kind: str = ""
    layout: str = ""


def _rank(outcome: CaseOutcome) -> tuple[bool, bool]:
    """A failure of a call of another shape in between is reported last: its own case may fail."""
    return outcome.check == "another shape", outcome.outcome == "error"


@dataclass(frozen=True)
class Verdict:
    """A judged kernel.

    Attributes:
        target: "my_kernel.py:fn".
        operator: the operator it is judged as; `what` is the user's name for it.
        device: "cuda", or "cpu", on which nothing is timed.
        seed: the seed of all values.
        left_out: cases that did not run, counted by reason.
        held: arguments that it does not take, and their values in its cases.
        checked: the number of cases on which each check ran.
        languages: kernel languages that it has imported.
        command: judges it again.
        unwatched: why the emulator's checks did not run for a kernel of a .cu, or ""; None for
            others.
        shortage: why the inputs that passed are not enough for the verdict "right", or "".
        kernels: the compiled properties of its kernels, as in `inspect.Inspection`; `no_kernels` is
            the reason if there are none.
        costs: the launches and memory of a call; `no_costs` is the reason if they are unknown.
        tables: its times with those of every rung and peer, one table per case; `no_times` is the
            reason if there are none.
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
    shortage: str = ""
    unwatched: str | None = None
    kernels: tuple[dict[str, Any], ...] = ()
    no_kernels: str = ""
    costs: Costs | None = None
    no_costs: str = ""
    tables: tuple[Table, ...] = ()
    noise: dict[str, float] = field(default_factory=dict)
    no_times: str = ""

    def objected(
        self, cases: Iterable[Case], objections: dict[str, tuple[str, str]], seed: int
    ) -> Verdict:
        """The verdict including the failures found by timing: check and reason by case."""
        late = tuple(
            CaseOutcome(
                case=c.id,
                outcome="wrong" if objections[c.id][0] else "error",
                check=objections[c.id][0],
                why=objections[c.id][1],
                lines=(),
                numel=c.numel,
                worst=None,
                command=f"{self.command} --case {c.id} --seed {seed}",
                kind="behaviour",
            )
            for c in cases
            if c.id in objections
        )
        return replace(self, outcomes=(*self.outcomes, *late)) if late else self

    @property
    def failures(self) -> tuple[CaseOutcome, ...]:
        """The failures: the worst kind first, and in each kind the smallest input first."""
        failures = [o for o in self.outcomes if o.outcome in ("wrong", "error")]
        order = list(KINDS)
        # a failed check is more informative than a process that has ended
        return tuple(sorted(failures, key=lambda o: (order.index(o.kind), *_rank(o), o.numel)))

    @property
    def smallest(self) -> CaseOutcome | None:
        """The smallest failing case of the worst kind."""
        return next(iter(self.failures), None)

    @property
    def passed(self) -> tuple[CaseOutcome, ...]:
        return tuple(o for o in self.outcomes if o.outcome == "pass")

    @property
    def refused(self) -> tuple[CaseOutcome, ...]:
        return tuple(o for o in self.outcomes if o.outcome == "refused")

    @property
    def edges(self) -> tuple[CaseOutcome, ...]:
        """Inputs without elements on which it raises."""
        return tuple(o for o in self.outcomes if o.outcome == "edge")

    @property
    def unable(self) -> tuple[CaseOutcome, ...]:
        """Inputs on which the kernel cannot be judged here."""
        return tuple(o for o in self.outcomes if o.outcome == "unable")

    @property
    def worst(self) -> CaseOutcome | None:
        """The passing case that used most of its error budget."""
        return max(self.passed, key=lambda o: usage(o.worst), default=None)

    @property
    def outcome(self) -> str:
        """ "right", "wrong", or "inconclusive", for the reason in `shortage`."""
        if self.failures:
            return "wrong"
        return "inconclusive" if self.shortage else "right"

    def properties(self) -> list[tuple[str, str]]:
        """Further properties of the kernel, in words."""
        pairs: list[tuple[str, str]] = []
        if self.unwatched is not None:
            said = self._ran("races and bounds", "none, by the emulator's checks on small inputs")
            pairs.append(("races and bounds", self.unwatched or said))
        return [
            *pairs,
            ("deterministic", self._deterministic()),
            ("graph capture", self._capture()),
            ("leaks memory", self._ran("memory flat", "no, over 1,000 calls")),
            ("stays on its stream", self._ran("current stream", "yes")),
        ]

    def _deterministic(self) -> str:
        if any(o.check == "repeatable" for o in self.failures):
            return "no: equal inputs gave different bits"
        return self._ran("repeatable", f"yes, {REPEATS} calls gave the same bits")

    @property
    def not_captured(self) -> str:
        """Why it cannot be captured in a graph, or "" if no reason is known."""
        return next((o.capture for o in self.outcomes if o.capture), "")

    def _capture(self) -> str:
        return self.not_captured or self._ran("graph replay", "yes, and replays recompute")

    def _ran(self, check: str, said: str) -> str:
        """The text for a property that a check verifies."""
        against = next((o for o in self.failures if o.check == check), None)
        if against:
            return against.why
        if self.checked.get(check):
            return said
        return (
            "not checked: it needs a GPU"
            if check in ON_A_GPU
            else "not checked: no input reached this check"
        )

    @property
    def exit_code(self) -> int:
        """The exit code, as defined in `support.errors`."""
        return EXIT_CODES[self.outcome]

    def as_json(self) -> dict[str, Any]:
        """The verdict as data, with the smallest failing case as a separate field."""
        plain = replace(self, tables=())
        return {
            **asdict(plain),
            "tables": [metrics.as_json(t) for t in self.tables],
            "note": ARBITRARY,
            "properties": dict(self.properties()),
            "outcome": self.outcome,
            "exit": self.exit_code,
            "smallest": asdict(self.smallest) if self.smallest else None,
        }
