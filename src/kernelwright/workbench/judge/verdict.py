"""The result of a judgement, as data."""

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
    "A kernel is arbitrary code. It runs in a process of its own, with limits of time and memory: "
    "that keeps out accidents and cheating, not malice. Judge what you would run."
)


ON_A_GPU = {c.name for c in CHECKS if c.gpu}


@dataclass(frozen=True)
class Costs:
    """The launches and memory of a call.

    Attributes:
        case: on which.
        launches: kernels that a call launches; without a GPU the operators that would launch one.
        counted: how they were counted.
        moved: bytes that these operators read and write, one by one; None where they are opaque.
        least: bytes that the operator must move.
        peak: bytes of GPU memory beside inputs and outputs; None without a GPU.
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
        """What a fusion and a graph would save, in words. `captured`: a graph can hold it."""
        cannot = "a graph: the function cannot be captured"
        return [self._fusion(), self._graph() if captured else cannot]

    def _fusion(self) -> str:
        if not self.launches:
            return "a fusion: not known, no operator launches what it does"
        if self.launches == 1:
            return "a fusion: nothing, a call is one launch"
        if self.moved is None:
            return f"a fusion: not known of {self.launches} launches, which are opaque"
        if self.moved <= 1.05 * self.least:
            return f"a fusion: no memory traffic, {self.launches} launches move what one must"
        factor = metrics.times(self.moved / max(self.least, 1))
        return (
            f"a fusion: {self.launches} launches move {metrics.size(self.moved)}, one need "
            f"move {metrics.size(self.least)}: {factor} less"
        )

    def _graph(self) -> str:
        if not self.host_us or not self.gpu_us:
            return "a graph: unknown, because it is timed only on a GPU"
        if self.host_us <= 1.1 * self.gpu_us:
            return f"a graph: nothing, the host is ahead of the GPU on {self.timed}"
        host, gpu = map(metrics.microseconds, (self.host_us, self.gpu_us))
        return f"a graph: the host takes {host} a call, the GPU {gpu}, on {self.timed}"


#: What a failure is about, the worst first.
KINDS = {
    "race": "races and bounds",
    "special": "NaN and infinity",
    "numerics": "numerics",
    "behaviour": "behaviour",
    "edge case": "edge cases",
    "layout": "layout",
}
EXIT_CODES = {"right": GOOD, "wrong": WRONG, "inconclusive": INCONCLUSIVE}


@dataclass(frozen=True)
class CaseOutcome:
    """The kernel on one case.

    Attributes:
        outcome: "pass", "wrong" (a check objects), "error" (it crashed, hung or raised what is no
            refusal), "refused" (its error says that it does not accept this), "edge" (it raised on
            an input without elements) or "unable" (it cannot be built or run on this machine).
        kind: of a failure, one of `KINDS`.
        layout: how the strides of a result differ from PyTorch's, of an input that passes.
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
    worst: Accuracy | None
    command: str
    capture: str = ""
    thorough: bool = False
    kind: str = ""
    layout: str = ""


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
        unwatched: why the emulator's checks did not watch a kernel of a .cu, or ""; None of others.
        shortage: why the inputs that passed are not enough to call it right, or "".
        kernels: what its kernels compile to, as `inspect.Inspection` has it; `no_kernels` says
            why there are none.
        costs: what a call takes besides time; `no_costs` says why nothing is known.
        tables: times beside every rung and peer, a table a case; `no_times` why there are none.
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
        """The verdict after what timing has found: check and reason by case."""
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
        """What is wrong or crashed: the worst kind first, in each the smallest input first."""
        found = [o for o in self.outcomes if o.outcome in ("wrong", "error")]
        order = list(KINDS)
        # a check that objects says more than a process that has ended
        return tuple(
            sorted(found, key=lambda o: (order.index(o.kind), o.outcome == "error", o.numel))
        )

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
        """Inputs on which it cannot be judged here."""
        return tuple(o for o in self.outcomes if o.outcome == "unable")

    @property
    def worst(self) -> CaseOutcome | None:
        """The passing case that used most of its budget of errors."""
        return max(self.passed, key=lambda o: usage(o.worst), default=None)

    @property
    def outcome(self) -> str:
        """ "right", "wrong", or "inconclusive": `shortage` says why."""
        if self.failures:
            return "wrong"
        return "inconclusive" if self.shortage else "right"

    def properties(self) -> list[tuple[str, str]]:
        """Further results of it, in words."""
        found: list[tuple[str, str]] = []
        if self.unwatched is not None:
            said = self._ran("races and bounds", "none, by the emulator's checks on small inputs")
            found.append(("races and bounds", self.unwatched or said))
        return [
            *found,
            ("deterministic", self._deterministic()),
            ("graph capture", self._capture()),
            ("leaves memory behind", self._ran("memory flat", "no, over 1,000 calls")),
            ("stays on its stream", self._ran("current stream", "yes")),
        ]

    def _deterministic(self) -> str:
        if any(o.check == "repeatable" for o in self.failures):
            return "no: equal inputs gave other bits"
        return self._ran("repeatable", f"yes, {REPEATS} calls gave the same bits")

    @property
    def not_captured(self) -> str:
        """Why a graph cannot hold it, or "" for all that is known."""
        return next((o.capture for o in self.outcomes if o.capture), "")

    def _capture(self) -> str:
        return self.not_captured or self._ran("graph replay", "yes, and replays compute anew")

    def _ran(self, check: str, said: str) -> str:
        """What to say of a property that a check has looked at."""
        against = next((o for o in self.failures if o.check == check), None)
        if against:
            return against.why
        if self.checked.get(check):
            return said
        return (
            "not checked: it needs a GPU"
            if check in ON_A_GPU
            else "not checked: no input got so far"
        )

    @property
    def exit_code(self) -> int:
        """As `support.errors` numbers them."""
        return EXIT_CODES[self.outcome]

    def as_json(self) -> dict[str, Any]:
        """As data, the smallest failing case by itself."""
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
