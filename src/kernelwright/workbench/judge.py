"""The truth about anybody's kernel: is it right, on which inputs, and what does it cost?

    from kernelwright.workbench.judge import judge
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.contract import Case, Ladder
from kernelwright.machine import here

from .checks import CHECKS, UNCAPTURED, rejection
from .sandbox import Box, Died, Failed, Limits, There
from .subject import Subject, backward_of, first_results, subject_of, with_gradients
from .terminal import Mistake
from .trial import Candidate, Trial
from .verdict import CaseOutcome, Verdict
from .verify import usage

#: Elements of the largest case that is tried without a GPU, by what the kernel is written in.
LARGEST = {"triton": 2**14, "numba": 200, "": 2**18}
#: What an input that a kernel does not take may be refused with, in words.
REFUSALS = ("ValueError", "TypeError", "NotImplementedError", "AssertionError")
ASKED = tuple(c for c in CHECKS if c.name != "fake")  # a user's function has no fake to hold to
REVIVALS = 3  # processes that a kernel may crash before it is no longer asked


@dataclass(frozen=True)
class Target:
    """A function in a file: "my_kernel.py:fn"."""

    path: Path
    name: str

    @staticmethod
    def of(text: str) -> Target:
        """Raises Mistake, saying how targets are written."""
        path, colon, name = text.rpartition(":")
        if not colon or not name:
            raise Mistake(f"{text}: name the function too, {text.rstrip(':')}:my_function")
        if not Path(path).is_file():
            raise Mistake(f"{text}: there is no file {path}")
        return Target(Path(path).resolve(), name)


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
        quick: time one case only, with few samples.
        box: a process to judge in, of several kernels one after the other; a new one by default.

    Returns:
        A `Verdict`: JSON-able by `as_json()`, with `exit_code` 0 right, 1 wrong, 3 nothing ran.

    Raises:
        Mistake: the file, the function or the spec is none, or the arguments do not fit; in words
            for the user. UnknownOperator: naming what there is.
    """
    asked = Target.of(target)
    subject = what if isinstance(what, Subject) else subject_of(what)
    if autograd:
        subject = with_gradients(subject)
    seed = secrets.randbits(40) if seed is None else seed
    one = _Judging(asked, subject, seed, deterministic, make, autograd, limits or Limits())
    with ExitStack() as stack:
        one.open(stack, box)
        return one.run(cases, on_case, command(target, what, autograd))


def command(target: str, what: Any, autograd: bool) -> str:
    """What to type to judge it again."""
    name = what.name if isinstance(what, (Ladder, Subject)) else str(what)
    return f"kernelwright judge {target} --as {name}{' --autograd' if autograd else ''}"


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
        raise Mistake("--backward, --autograd: the one or the other")
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

    def __init__(self, target, subject: Subject, seed, deterministic, make, autograd, limits):
        self.target, self.subject, self.seed = target, subject, seed
        self.deterministic, self.make, self.autograd = deterministic, make, autograd
        self.limits, self.device = limits, here()
        self.facts: dict[str, Any] = {}
        self.deaths = 0

    def open(self, stack: ExitStack, box: Box | None) -> None:
        """Start a process, unless there is one, and load the function into it."""
        self.stack = stack
        self.box = box or stack.enter_context(Box(self.device, limits=self.limits))
        kind: dict[str, Any] = {}
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
            raise Mistake(f"{self.target.path.name}: {said}{where}") from None
        except Died as e:
            raise Mistake(f"{self.target.path.name}: importing it, {e}") from None
        self.bind, self.held = binding(self.subject, self.facts["parameters"], self.autograd)

    def run(self, ids: list[str] | None, on_case, again: str) -> Verdict:
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
            on_case(case)
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

    def _cases(self, ids: list[str] | None, left_out: Counter[str]) -> list[Case]:
        """The cases to try, smallest first; what is left out is counted by its reason."""
        op = self.subject.operator
        if ids:
            known = {c.id: c for c in op.cases}
            for i in ids:
                if i not in known:
                    some = ", ".join(list(known)[:8])
                    raise Mistake(f"--case: {op.name} has no case {i!r}; it has {some}, ...")
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
            if case.param(name, value) != value:
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
            place=There(self.box, op, self.bind),
        )
        return Trial(candidate, case, self.device.type, seed=self.seed)

    def _case(self, case: Case, thorough: bool, checked: Counter[str], again: str) -> CaseOutcome:
        trial = self._trial(case)
        command = f"{again} --case {case.id} --seed {self.seed}"
        outcome, check, why, lines = "pass", "", "", ()
        capture = ""
        try:
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
            outcome = "refused" if e.kind in REFUSALS else "error"
            why, lines = str(e).strip().splitlines()[0], e.lines
        except Died as e:
            outcome, why = "error", str(e)
            self._revive()
        worst = max(trial.verdicts, key=usage, default=None)
        return CaseOutcome(
            case.id, outcome, check, why, lines, case.numel, worst, command, capture, thorough
        )

    def _revive(self) -> None:
        """A new process after the old one has ended."""
        self.deaths += 1
        self.box = self.stack.enter_context(Box(self.device, limits=self.limits))
        self.open(self.stack, self.box)


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


def binding(
    subject: Subject, parameters: list[dict[str, Any]] | None, autograd: bool
) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]:
    """(how a function is called with an operator's arguments, the values that it must be held to
    because it takes no such argument).

    Raises:
        Mistake: it takes more than there is, or less than the tensors.
    """
    op = subject.operator
    names = [a.name for a in op.args]
    gradients = names[-1:] if autograd else []
    names = names[: len(names) - len(gradients)]
    known = None if parameters is None else [p for p in parameters if p["kind"][:3] != "VAR"]
    varies = parameters is None or any(p["kind"] == "VAR_POSITIONAL" for p in parameters)
    if known is None or varies:
        taken, by_name = names, set[str]()
    else:
        positional = [p["name"] for p in known if p["kind"] != "KEYWORD_ONLY"]
        needed = [p["name"] for p in known if not p["default"]]
        alike = set(needed) <= set(names) and {p["name"] for p in known} & set(names)
        if alike:
            taken = [n for n in names if n in {p["name"] for p in known}]
            positional = [n for n in positional if n in names]
            # by position as long as the order is the same, by name from there on
            order = [n for n, m in zip(taken, positional, strict=False) if n == m]
            by_name = set(taken) - set(order)
        else:
            taken, by_name = names[: len(positional)], set[str]()
            if len(needed) > len(names):
                raise Mistake(
                    f"it needs {len(needed)} arguments ({', '.join(needed)}); "
                    f"{op.name} gives {len(names)} ({', '.join(names)})"
                )
    missing = [a for a in op.args if a.name in names and a.name not in taken]
    for a in missing:
        if a.kind in ("Tensor", "Tensor[]"):
            raise Mistake(
                f"it takes {len(taken)} arguments; {op.name} gives {len(names)} "
                f"({', '.join(names)}), and {a.name} is a tensor"
            )
    held = {a.name: _usual(subject, a.name) for a in missing}

    def bind(args: dict[str, Any]) -> dict[str, Any]:
        listed = [args[n] for n in taken if n not in by_name]
        listed += [args[n] for n in gradients]
        return {"listed": listed, "named": {n: args[n] for n in taken if n in by_name}}

    return bind, held


def _usual(subject: Subject, name: str) -> Any:
    """The value that most cases give an argument."""
    values = Counter(
        c.param(name) for c in subject.operator.cases if name in dict(c.params)
    ).most_common(1)
    default = next(a.default for a in subject.operator.args if a.name == name)
    return values[0][0] if values else default
