"""The truth about anybody's kernel: is it right, on which inputs, and what does it cost?

    from kernelwright.workbench.judge.judge import judge
    verdict = judge("my_kernel.py:fn", "softmax")
    verdict.outcome, verdict.smallest, verdict.exit_code

The kernel runs in a process of its own (`sandbox`); the checks are those that rungs pass
(`checks`), and they run here.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.contract import Case, Ladder
from kernelwright.machine import here
from kernelwright.support.errors import UsageError
from kernelwright.workbench.bench.workload import unfit
from kernelwright.workbench.records.metrics import Table
from kernelwright.workbench.verify.candidate import Candidate, Trial, tensors
from kernelwright.workbench.verify.checks import CHECKS, UNCAPTURED, rejection
from kernelwright.workbench.verify.verify import usage

from . import static_info, timing
from .call_signature import binding, value_of
from .sandbox.proxy import There
from .sandbox.sandbox import ELSEWHERE, Box, Died, Failed, Limits
from .spec import Subject, backward_of, first_results, subject_of, with_gradients
from .target import Target, command, launchable
from .verdict import CaseOutcome, Verdict

#: Elements of the largest case that is tried without a GPU, by what the kernel is written in.
LARGEST = {"triton": 2**14, "numba": 200, "": 2**18}
ASKED = tuple(c for c in CHECKS if c.name != "fake")  # a user's function has no fake to hold to
SETS = 8  # of arguments and results that a check has at a time, with room to move
REVIVALS = 3  # processes that a kernel may crash before it is no longer asked


def judge(
    target: str,
    what: str | Path | Ladder | Subject,
    *,
    autograd: bool = False,
    make: bool = False,
    cases: list[str] | None = None,
    seed: int | None = None,
    deterministic: bool = True,
    launch: Path | None = None,
    quick: bool = False,
    describe: bool = True,
    limits: Limits | None = None,
    box: Box | None = None,
    on_case: Callable[[Case], None] = lambda case: None,
) -> Verdict:
    """Judge a Python function over tensors for correctness, in a process of its own.

    Args:
        target: "my_kernel.py:fn"; it is called with the operator's arguments, by name where its
            parameters are named alike, by position otherwise.
        what: what it claims to be: an operator's name ("softmax", "softmax.backward"), the path
            of a spec (see `subject`), a ladder, or a `Subject`.
        autograd: the gradients that autograd finds through it are judged instead of its results.
        make: `fn()` makes the kernel; it is not the kernel.
        cases: ids; by default every case that this machine can run.
        seed: of all values, to try the same again; by default one that nobody can foresee.
        deterministic: equal inputs must give equal bits.
        launch: how the kernel of a .cu is launched (see `launch_file`).
        describe: find out besides what it compiles to, what it costs and, on a GPU, its times.
        quick: time one case only, with few samples.
        box: a process to judge in, of several kernels one after the other; a new one by default.

    Returns:
        A `Verdict`: JSON-able by `as_json()`, with `exit_code` 0 right, 1 wrong, 3 nothing ran.

    Raises:
        UsageError: the file, the function or the spec is none, or the arguments do not fit.
            UnknownOperator: naming what there is.
    """
    asked = Target.of(target)
    subject = what if isinstance(what, Subject) else subject_of(what)
    if autograd:
        subject = with_gradients(subject)
    launchable(asked, launch)
    again = command(target, what, autograd, launch, deterministic)
    with ExitStack() as stack:
        one = _Judging(
            asked,
            subject,
            seed=secrets.randbits(40) if seed is None else seed,
            deterministic=deterministic,
            make=make,
            autograd=autograd,
            launch=launch and launch.resolve(),
            what=what.name if isinstance(what, (Ladder, Subject)) else str(what),
            limits=limits or Limits(),
            quick=quick,
            on_case=on_case,
            stack=stack,
        )
        one.open(box)
        verdict = one.run(cases, again)
        return one.described(verdict, cases) if describe else verdict


def judge_all(
    target: str,
    what: str,
    *,
    backward: str | None = None,
    autograd: bool = False,
    say: Callable[[str], None] = lambda words: None,
    **how: Any,
) -> list[Verdict]:
    """A kernel, and its backward or its gradients, each judged for itself; arguments of `judge`.

    Args:
        backward: a function of the same file, or "other.py:fn".
        say: told what is being done.
    """
    if backward and autograd:
        raise UsageError("--backward, --autograd: the one or the other")
    wanted = [(target, what, False)]
    if backward:
        path = target.rpartition(":")[0]
        other = backward if ":" in backward else f"{path}:{backward}"
        wanted.append((other, backward_of(subject_of(what)).name, False))
    if autograd:
        wanted.append((target, what, True))
    found: list[Verdict] = []
    for this, claim, gradients in wanted:
        name = Target.of(this).name

        def on_case(case: Case, name: str = name) -> None:
            say(f"{name}: {case.id}")

        found.append(judge(this, claim, autograd=gradients, on_case=on_case, **how))
    return found


class _Judging:
    """One kernel on all cases of its operator."""

    def __init__(
        self,
        target: Target,
        subject: Subject,
        *,
        seed: int,
        deterministic: bool,
        make: bool,
        autograd: bool,
        launch: Path | None,
        what: str,
        limits: Limits,
        quick: bool,
        on_case: Callable[[Case], None],
        stack: ExitStack,
    ):
        self.quick, self.on_case = quick, on_case
        self.target, self.subject, self.seed = target, subject, seed
        self.deterministic, self.make, self.autograd = deterministic, make, autograd
        self.launch, self.what, self.limits, self.stack = launch, what, limits, stack
        self.device = here()
        self.facts: dict[str, Any] = {}
        self.deaths, self.dead = 0, False

    def open(self, box: Box | None = None) -> None:
        """Start a process, unless there is one, and load the function into it."""
        self.box = box or self.stack.enter_context(Box(self.device, limits=self.limits))
        kind: dict[str, Any] = {}
        if self.launch:
            kind["launch"] = {"path": str(self.launch), "what": self.what}
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
            where = "".join(f"\n  {line}" for line in e.lines)
            said = e.message if e.kind == "NoFunction" else f"importing it, {e}"
            raise UsageError(f"{self.target.path.name}: {said}{where}") from None
        except Died as e:
            raise UsageError(f"{self.target.path.name}: importing it, {e}") from None
        self.arguments_of, self.held = binding(
            self.subject, self.facts["parameters"], self.autograd
        )

    def run(self, ids: list[str] | None, again: str) -> Verdict:
        outcomes: list[CaseOutcome] = []
        left_out: Counter[str] = Counter()
        cases = self._cases(ids, left_out)
        self._count_results(cases)
        thorough = set(_thorough(cases))
        checked: Counter[str] = Counter()
        for case in cases:
            if self.deaths >= REVIVALS:
                left_out[f"its process ended {REVIVALS} times"] += 1
                continue
            if self.dead:
                self._revive()
            self.on_case(case)
            outcomes.append(self._case(case, case in thorough, checked, again))
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
        )

    def described(self, verdict: Verdict, ids: list[str] | None) -> Verdict:
        """The verdict with what a kernel that is right costs and compiles to."""
        wrong = bool(verdict.failures)
        none = "not timed: nothing that is wrong is" if wrong else "not timed: nothing could run"
        if self.dead:
            gone = "not asked: its process has ended"
            return replace(verdict, no_kernels=gone, no_costs=gone, no_times=none)
        probe = next((c for c in self._probes() if c.id in {o.case for o in verdict.passed}), None)
        if probe is None:
            some = "not asked: it is right on no input of some size"
            if verdict.passed and not wrong:
                none = "not timed: it is right on no input of some size"
            return replace(verdict, no_kernels=some, no_costs=some, no_times=none)
        found = static_info.found(self.box, self._trial(probe), self.target, self.limits)
        verdict = replace(verdict, **found)
        if wrong:
            return replace(verdict, no_times=none)
        if self.autograd:
            return replace(verdict, no_times="gradients through autograd are not timed: --backward")
        if self.device.type != "cuda":
            return replace(verdict, no_times="not timed: that needs a GPU")
        return self.with_times(verdict, ids)

    def with_times(self, verdict: Verdict, ids: list[str] | None) -> Verdict:
        """The verdict with its times, on the cases that were asked for; what timing finds wrong
        is wrong."""
        place = There(self.box, self.subject.operator, self.arguments_of)
        guest = timing.Timed(verdict.target, place, self.subject, self.seed + 7)
        refused = timing.refused(self.subject, verdict)
        cases = timing.cases_to_time(self.subject, self.held, self.device, self.quick, refused)
        if ids:
            passed = {o.case for o in verdict.passed}
            named = [self.subject.operator.case(i) for i in ids if i in passed]
            cases = [c for c in named if unfit(c, self.device) is None]
        if not cases or self.subject.ladder is None:
            return replace(verdict, no_times="not timed: no case of a size to time is among them")
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
        """Cases to look at closely, the largest first."""
        plain = [c for c in self.subject.operator.cases if c.values == "normal" and c.numel > 32]
        return sorted(plain, key=lambda c: -c.numel)

    def _cases(self, ids: list[str] | None, left_out: Counter[str]) -> list[Case]:
        """The cases to try, smallest first; what is left out is counted by its reason."""
        op = self.subject.operator
        if ids:
            known = {c.id: c for c in op.cases}
            for i in ids:
                if i not in known:
                    some = ", ".join(list(known)[:8])
                    raise UsageError(f"--case: {op.name} has no case {i!r}; it has {some}, ...")
            return [known[i] for i in ids]
        kept: list[Case] = []
        for case in op.cases:
            why = self._left_out(case)
            if why:
                left_out[why] += 1
            else:
                kept.append(case)
        return sorted(kept, key=lambda c: c.numel)

    def _left_out(self, case: Case) -> str | None:
        for name, value in self.held.items():
            if value_of(self.subject, case, name) != value:
                return f"it takes no {name}: only cases with {name}={value}"
        if case.use == "big":
            return "more than 2**31 elements"
        if self.device.type == "cuda":
            return "timed, and proven right there" if case.use == "bench" else None
        language = next((n for n in ("numba", "triton") if n in self.facts["languages"]), "")
        if case.numel > LARGEST[language]:
            return f"more than {LARGEST[language]} elements: on a GPU"
        return None

    def _count_results(self, cases: list[Case]) -> None:
        """A function may leave out the operator's last results; one call says how many it gives."""
        op = self.subject.operator
        probe = next((c for c in cases if c.numel and c.values == "normal"), None)
        if len(op.results) < 2 or probe is None:
            return
        trial = self._trial(probe)
        try:
            given = len(trial.run(trial.fence()).outputs)
        except (Failed, Died):
            return  # said when the case's turn comes
        if 0 < given < len(op.results):
            self.subject = first_results(self.subject, given)

    def _trial(self, case: Case) -> Trial:
        op = self.subject.operator
        same = [c for c in op.cases if c.use == "verify" and c.values == "normal"]

        def sibling(shown: Case) -> Case | None:
            fits = (
                c for c in same
                if c.dtype == shown.dtype and c.shape != shown.shape and c.numel > 32
                and c.params == shown.params and c.layout == "contiguous"
                and self._left_out(c) is None
            )  # fmt: skip
            wider = sorted(fits, key=lambda c: c.numel)
            return wider[-1] if wider else None

        candidate = Candidate(
            op,
            _nobody,
            self.subject.native,
            self.deterministic,
            sibling,
            like_native=True,
            place=There(self.box, op, self.arguments_of),
        )
        return Trial(candidate, case, self.device.type, seed=self.seed)

    def _case(self, case: Case, thorough: bool, checked: Counter[str], again: str) -> CaseOutcome:
        trial = self._trial(case)
        command = f"{again} --case {case.id} --seed {self.seed}"
        outcome, check, why, lines = "pass", "", "", ()
        capture = ""
        try:
            self._make_room(case, trial.candidate.sibling(case) if thorough else None)
            found = rejection(trial, thorough=thorough, checks=ASKED)
            if found and found[0] == "graph replay" and found[1].startswith(UNCAPTURED):
                capture, found = found[1], None  # a property, and no fault
            if found:
                outcome, (check, why) = "wrong", found
            for c in ASKED:
                runs = (thorough or not c.again) and (not c.gpu or self.device.type == "cuda")
                checked[c.name] += int(runs)
                if found and c.name == found[0]:
                    break
        except Failed as e:
            outcome = "refused" if e.refused else "error"
            why, lines = str(e).strip().splitlines()[0], e.lines
            if e.kind in ELSEWHERE and self.device.type == "cpu":
                why = f"cannot run without a GPU: {why}"
        except Died as e:
            outcome, why = "error", str(e)
            self.deaths, self.dead = self.deaths + 1, True
        worst = max(trial.verdicts, key=usage, default=None)
        return CaseOutcome(
            case.id, outcome, check, why, lines, case.numel, worst, command, capture, thorough
        )

    def _make_room(self, *cases: Case | None) -> None:
        """Share enough memory for the arguments and results that checks have at a time."""
        most = 0
        for case in filter(None, cases):
            want = self._trial(case).expected()
            each = sum(t.untyped_storage().nbytes() for t in tensors(want.args))
            most = max(most, each + max((t.nbytes for t in want.native), default=0))
        if SETS * most > self.box.arena.size:
            self.box.rearm(SETS * most, largest=most)

    def _revive(self) -> None:
        """A new process after the old one has ended."""
        self.dead = False
        self.open()


def _nobody(*args: Any) -> Any:
    raise AssertionError("a judged kernel is called in its own process")


def _thorough(cases: list[Case]) -> list[Case]:
    """The cases that run every check: of each dtype and layout the first of some size, and of
    each set of parameters."""
    kept: list[Case] = []
    seen: set[Any] = set()
    for c in cases:
        keys = {(c.dtype, c.layout), c.params}
        if c.values == "normal" and c.numel > 32 and not keys <= seen:
            kept.append(c)
            seen |= keys
    return kept
