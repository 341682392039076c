"""One kernel on all inputs of its operator, in a separate process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from kernelwright import emulator
from kernelwright.contract import Case
from kernelwright.machine import here
from kernelwright.support.errors import INCONCLUSIVE, UsageError, UserError
from kernelwright.workbench.bench.workload import unfit
from kernelwright.workbench.records.metrics import Table
from kernelwright.workbench.verify.candidate import Candidate, tensors
from kernelwright.workbench.verify.trial import Trial

from . import static_info, timing
from .attempt import attempt
from .call_signature import binding
from .cases import Selection, thorough, with_declared_shapes
from .sandbox.proxy import SandboxRunner
from .sandbox.sandbox import Box, Died, Failed, Limits
from .spec import Subject, first_results
from .target import Target
from .verdict import CaseOutcome, Verdict

SETS = 8  # sets of arguments and results that a check holds at a time, with a margin
UNABLE = 2  # consecutive inputs that cannot be judged here before no further one is tried
REVIVALS = 3  # crashes of its process after which a kernel is no longer run
SIBLING = 2**14  # elements of the largest other shape used between two calls


#: Why an extension that is compiled when it is imported cannot be judged, and what can be.
NVCC = (
    "importing it compiles CUDA C++ with nvcc (load_inline, load), which needs CUDA's toolkit and "
    "a GPU. Its kernels can be judged here: write their source to a .cu, and use "
    "kernelwright judge FILE.cu:KERNEL --as ... --launch LAUNCH.py; "
    "python -m pydoc kernelwright.workbench.judge.launch_file describes LAUNCH.py"
)


class CannotJudge(UserError):
    """This machine cannot build the kernel; the message states the reason."""

    exit_code = INCONCLUSIVE


class Judging:
    """One kernel on all cases of its operator."""

    def __init__(
        self,
        target: Target,
        subject: Subject,
        *,
        seed: int,
        deterministic: bool,
        strict: bool,
        make: bool,
        autograd: bool,
        launch: Path | None,
        what: str,
        limits: Limits,
        quick: bool,
        on_case: Callable[[Case], None],
        stack: ExitStack,
    ):
        self.quick, self.on_case, self.strict = quick, on_case, strict
        self.target, self.subject, self.seed = target, subject, seed
        self.deterministic, self.make, self.autograd = deterministic, make, autograd
        self.launch, self.what, self.limits, self.stack = launch, what, limits, stack
        self.device = here()
        self.facts: dict[str, Any] = {}
        self.refused: set[str] = set()  # ids of cases
        self.deaths, self.dead = 0, False

    def open(self, box: Box | None = None) -> None:
        """Start a process, unless there is one, and load the function into it."""
        self.box = box or self.stack.enter_context(Box(self.device, limits=self.limits))
        kind: dict[str, Any] = {}
        if self.launch:
            kind["launch"] = {"path": str(self.launch), "what": self.what}
        if self.subject.solution:
            kind["solution"] = self.subject.solution
        if self.autograd:
            names = [a.name for a in self.subject.operator.args]
            tensor = {a.name for a in self.subject.operator.args if a.kind[:6] == "Tensor"}
            kind["autograd"] = {
                "arguments": [n if n in tensor else "" for n in names[:-1]],
                "gradients": 1,
            }
        try:
            self.facts = self.box.load(self.target.path, self.target.name, make=self.make, **kind)
        except Failed as e:
            if e.unable:
                raise CannotJudge(f"{self.target.path.name}: it cannot be judged here: {e}") from e
            if "CUDA_HOME" in e.message:
                raise CannotJudge(f"{self.target.path.name}: {NVCC}") from e
            where = "".join(f"\n  {line}" for line in e.lines)
            said = e.message if e.kind == "NoFunction" else f"importing it, {e}"
            raise UsageError(f"{self.target.path.name}: {said}{where}") from None
        except Died as e:
            raise UsageError(f"{self.target.path.name}: importing it, {e}") from None
        if self.facts["shapes"]:
            self.subject = with_declared_shapes(self.subject, self.facts["shapes"])
        self.arguments_of, self.held = binding(
            self.subject, self.facts["parameters"], self.autograd
        )
        languages = tuple(self.facts["languages"]) + (("cuda",) if self.launch else ())
        self.unwatched = self._unwatched()
        self.lockable = self.device.type == "cuda" or not languages
        self.selection = Selection(self.subject, self.held, self.device, languages)

    def _unwatched(self) -> str | None:
        """Why the emulator's checks do not run for a kernel of a .cu, or ""; None for others."""
        if not self.launch:
            return None
        if self.device.type == "cuda":
            return "not checked: `judge` checks that without a GPU"
        missing = emulator.missing("watched")
        return f"not checked: {missing}" if missing else ""

    def run(self, ids: list[str] | None, again: str) -> Verdict:
        outcomes: list[CaseOutcome] = []
        left_out: Counter[str] = Counter()
        if self.subject.reduced:
            left_out[f"too large without a GPU: judged with {self.subject.reduced}"] = 1
        cases = self.selection.cases(ids, left_out)
        self._count_results(cases)
        full = set(thorough(cases))
        checked: Counter[str] = Counter()
        for case in cases:
            if self.deaths >= REVIVALS:
                left_out[f"its process ended {REVIVALS} times"] += 1
                continue
            if _unable(outcomes) >= UNABLE:
                left_out[f"like {outcomes[-1].case}, it cannot be judged here"] += 1
                continue
            if self.dead:
                self._revive()
            self.on_case(case)
            outcomes.append(self._case(case, case in full, checked, again))
        return Verdict(
            target=str(self.target.path.name) + ":" + self.target.name,
            operator=self.subject.operator.name,
            what=self.subject.name,
            device=str(self.device.type),
            seed=self.seed,
            outcomes=tuple(outcomes),
            left_out=dict(left_out),
            held=self.held,
            checked=dict(checked),
            languages=tuple(self.facts["languages"]),
            command=again,
            unwatched=self.unwatched,
            shortage=self.selection.shortage(outcomes, ids),
        )

    def described(self, verdict: Verdict, ids: list[str] | None) -> Verdict:
        """The verdict with the costs and static properties of a kernel that is right."""
        wrong = bool(verdict.failures)
        none = "only correct kernels are timed" if wrong else "not timed: no input could run"
        if self.dead:
            gone = "not available: the kernel's process has ended"
            return replace(verdict, no_kernels=gone, no_costs=gone, no_times=none)
        probe = next((c for c in self._probes() if c.id in {o.case for o in verdict.passed}), None)
        if probe is None:
            some = "not available: it is not right on any input of more than 32 elements"
            if verdict.passed and not wrong:
                none = "not timed: it is not right on any input of more than 32 elements"
            return replace(verdict, no_kernels=some, no_costs=some, no_times=none)
        facts = static_info.fields(self.box, self._trial(probe), self.target, self.limits)
        verdict = replace(verdict, **facts)
        if wrong:
            return replace(verdict, no_times=none)
        if self.autograd:
            return replace(verdict, no_times="gradients by autograd are not timed; use --backward")
        if self.device.type != "cuda":
            return replace(verdict, no_times="not timed: timing needs a GPU")
        return self.with_times(verdict, ids)

    def with_times(self, verdict: Verdict, ids: list[str] | None) -> Verdict:
        """The verdict with its times, on the requested cases; what timing finds to be wrong is a
        failure."""
        runner = SandboxRunner(self.box, self.subject.operator, self.arguments_of)
        guest = timing.Timed(verdict.target, runner, self.subject, self.seed + 7)
        refused = timing.refused(self.subject, verdict)
        cases = timing.cases_to_time(self.subject, self.held, self.device, self.quick, refused)
        if ids:
            passed = {o.case for o in verdict.passed}
            named = [self.subject.operator.case(i) for i in ids if i in passed]
            cases = [c for c in named if unfit(c, self.device) is None]
        if not cases or self.subject.ladder is None:
            return replace(
                verdict, no_times="not timed: none of the cases is large enough to be timed"
            )
        tables: list[Table] = []
        noise: dict[str, float] = {}
        for table, result in timing.timed(guest, cases, quick=self.quick, on_case=self.on_case):
            tables.append(table)
            noise |= {case: n for (_, case), n in result.noise.items()}
            mine = next(r for r in table.rows if r.name == guest.name)
            if verdict.costs and not verdict.costs.timed and mine.cold and guest.host_us:
                costs = replace(
                    verdict.costs, timed=table.case, gpu_us=mine.cold, host_us=guest.host_us
                )
                verdict = replace(verdict, costs=costs)
        verdict = replace(verdict, tables=tuple(tables), noise=noise)
        return verdict.objected(cases, guest.objections, self.seed)

    def _probes(self) -> list[Case]:
        """Cases for which costs and static properties are determined, the largest first."""
        plain = [c for c in self.subject.operator.cases if c.values == "normal" and c.numel > 32]
        return sorted(plain, key=lambda c: -c.numel)

    def _count_results(self, cases: list[Case]) -> None:
        """Find with one call how many results a function returns; it may omit the last ones."""
        op = self.subject.operator
        probe = next((c for c in cases if c.numel and c.values == "normal"), None)
        if len(op.results) < 2 or probe is None:
            return
        trial = self._trial(probe)
        try:
            given = len(trial.run(trial.fence()).outputs)
        except (Failed, Died):
            return  # reported when the case is judged
        if 0 < given < len(op.results):
            self.subject = first_results(self.subject, given)

    def _trial(self, case: Case) -> Trial:
        op = self.subject.operator
        same = [c for c in op.cases if c.use == "verify" and c.values == "normal"]

        def sibling(shown: Case) -> Case | None:
            fits = [
                c for c in same
                if c.dtype == shown.dtype and c.shape != shown.shape and 32 < c.numel <= SIBLING
                and c.params == shown.params and c.layout == "contiguous"
                and c.id not in self.refused and self.selection.left_out(c) is None
            ]  # fmt: skip
            return max(fits, key=lambda c: c.numel, default=None)

        candidate = Candidate(
            op,
            _called_elsewhere,
            self.subject.native,
            self.deterministic and not self.subject.check,  # its tolerance decides
            sibling,
            any_strides=True,
            runner=SandboxRunner(
                self.box, op, self.arguments_of, self.lockable, self.refused, self.unwatched == ""
            ),
            check=self.subject.check,
        )
        return Trial(candidate, case, self.device.type, seed=self.seed)

    def _case(self, case: Case, thorough: bool, checked: Counter[str], again: str) -> CaseOutcome:
        trial = self._trial(case)
        command = f"{again} --case {case.id} --seed {self.seed}"
        try:
            self._make_room(case, trial.candidate.sibling(case) if thorough else None)
            outcome = attempt(
                trial, thorough=thorough, strict=self.strict, checked=checked, command=command
            )
        except Died as e:
            self.deaths, self.dead = self.deaths + 1, True
            return CaseOutcome(
                case.id, "error", "", str(e), (), case.numel, None, command,
                thorough=thorough, kind="behaviour",
            )  # fmt: skip
        if not self.box.process.alive:  # a check has ended it
            self.deaths, self.dead = self.deaths + 1, True
        return outcome

    def _make_room(self, *cases: Case | None) -> None:
        """Share enough memory for the arguments and results that checks hold at a time."""
        most = 0
        for case in filter(None, cases):
            want = self._trial(case).expected()
            each = sum(t.untyped_storage().nbytes() for t in tensors(want.args))
            most = max(most, each + max((t.nbytes for t in want.native), default=0))
        arena = self.box.arena
        if SETS * most > arena.size or most > arena.largest:  # another kernel may have needed less
            self.box.rearm(SETS * most, largest=most)

    def _revive(self) -> None:
        """A new process after the old one has ended."""
        self.dead = False
        self.open()


def _called_elsewhere(*args: Any) -> Any:
    raise AssertionError("a judged kernel is called in its own process")


def _unable(outcomes: list[CaseOutcome]) -> int:
    """How many of the newest outcomes are that the kernel cannot be judged here."""
    return len(list(takewhile(lambda o: o.outcome == "unable", reversed(outcomes))))
