"""Judges a user's kernel: is it right, on which inputs, and what does it cost?

    from kernelwright.workbench.judge.judge import judge
    verdict = judge("my_kernel.py:fn", "softmax")
    verdict.outcome, verdict.smallest, verdict.exit_code

The kernel runs in a separate process (`sandbox`); the checks are those of rungs (`checks`) and run
in this process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernelwright.contract import Case, Ladder
from kernelwright.machine import random_state
from kernelwright.support.errors import UsageError

from .cases import with_larger_cases
from .judging import Judging
from .sandbox.sandbox import Box, Limits
from .spec import Subject, backward_of, subject_of, with_gradients
from .target import Target, command, launchable
from .verdict import Verdict


@random_state.preserved()
def judge(
    target: str,
    what: str | Path | Ladder | Subject,
    *,
    autograd: bool = False,
    make: bool = False,
    cases: list[str] | None = None,
    seed: int | None = None,
    deterministic: bool = True,
    strict: bool = False,
    launch: Path | None = None,
    quick: bool = False,
    describe: bool = True,
    limits: Limits | None = None,
    box: Box | None = None,
    on_case: Callable[[Case], None] = lambda case: None,
) -> Verdict:
    """Judge a Python function of tensors for correctness, in a separate process.

    Args:
        target: "my_kernel.py:fn"; it is called with the operator's arguments, by name if its
            parameter names match, else by position.
        what: what it should compute: an operator's name ("softmax", "softmax.backward"), the path
            of a spec (see `spec`), a ladder, or a `Subject`.
        autograd: whether to judge the gradients that autograd computes with it, not its results.
        make: whether `fn()` returns the kernel, instead of being the kernel.
        cases: ids; by default every case that this machine can run.
        seed: input seed, to repeat a run (default: random).
        deterministic: whether equal inputs must give bitwise equal results.
        strict: whether strides that differ from PyTorch's, and exceptions on inputs without
            elements, are failures instead of notes.
        launch: how the kernel of a .cu is launched (see `launch_file`).
        describe: also determine what it compiles to, its launches and memory and, on a GPU, its
            times.
        quick: time only one case, with few samples.
        box: the process to judge in, which may be reused for several kernels; by default a new one.

    Returns:
        A `Verdict`: JSON-able by `as_json()`, with its `exit_code`.

    Raises:
        UsageError: the file, the function or the spec does not exist, or the arguments do not
            match. UnknownOperator: an unknown name; the message lists the known ones.
    """
    asked = Target.of(target)
    subject = what if isinstance(what, Subject) else subject_of(what)
    if autograd:
        subject = with_gradients(subject)
    if not isinstance(what, Subject) and subject.solution is None:
        subject = with_larger_cases(subject)
    launchable(asked, launch)
    again = command(target, what, autograd, launch, deterministic, strict)
    with ExitStack() as stack:
        one = Judging(
            asked,
            subject,
            seed=secrets.randbits(40) if seed is None else seed,
            deterministic=deterministic,
            strict=strict,
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
    """A kernel, and its backward or its gradients, each judged separately; arguments as in `judge`.

    Args:
        backward: a function of the same file, or "other.py:fn".
        say: called with a line of text before each long step.
    """
    if backward and autograd:
        raise UsageError("--backward, --autograd: give only one of them")
    wanted = [(target, what, False)]
    if backward:
        path = target.rpartition(":")[0]
        other = backward if ":" in backward else f"{path}:{backward}"
        wanted.append((other, backward_of(subject_of(what)).name, False))
    if autograd:
        wanted.append((target, what, True))
    verdicts: list[Verdict] = []
    for this, claim, gradients in wanted:
        name = Target.of(this).name

        def on_case(case: Case, name: str = name) -> None:
            say(f"{name}: {case.id}")

        verdicts.append(judge(this, claim, autograd=gradients, on_case=on_case, **how))
    return verdicts
