"""One kernel on one input: the results of the checks, what it raises, and how severe that is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kernelwright.support.errors import UsageError
from kernelwright.workbench.verify.checks import UNCAPTURED, rejection
from kernelwright.workbench.verify.trial import Trial
from kernelwright.workbench.verify.verify import usage

from .checks import ASKED, LAYOUT, RACES
from .launch_file import LaunchFile
from .sandbox.sandbox import Failed
from .verdict import CaseOutcome

#: What the checks of Triton's interpreter raise.
ACCESSES = ("OutOfBounds", "ProgramRace")
SEEDS = (1, 2, 3)  # of other values, with which a rejected input is tried again


def attempt(
    trial: Trial, *, thorough: bool, strict: bool, checked: Counter[str], command: str
) -> CaseOutcome:
    """Judge a kernel on a case.

    Args:
        thorough: whether to run every check, or only those that need a single call.
        strict: whether strides that differ from PyTorch's, and exceptions on inputs without
            elements, are failures.
        checked: on how many cases each check has run; this case is added.

    Raises:
        Died: its process has ended.
    """
    blank = CaseOutcome(
        trial.case.id, "pass", "", "", (), trial.case.numel, None, command, thorough=thorough
    )
    try:
        outcome = _checked(blank, trial, thorough, strict, checked)
    except Failed as e:
        outcome = _raised(blank, trial, strict, e)
    return replace(outcome, worst=max(trial.verdicts, key=usage, default=None))


def _checked(
    blank: CaseOutcome, trial: Trial, thorough: bool, strict: bool, checked: Counter[str]
) -> CaseOutcome:
    rejected = rejection(trial, thorough=thorough, checks=ASKED)
    asked = [c for c in ASKED if c.name != "repeatable" or trial.candidate.deterministic]
    for c in asked:
        checked[c.name] += int((thorough or not c.again) and (not c.gpu or trial.device == "cuda"))
        if rejected and c.name == rejected[0]:
            break
    if rejected is None:
        return blank
    check, why = rejected
    if check == "graph replay" and why.startswith(UNCAPTURED):
        return replace(blank, capture=why)  # a property, not a fault
    if check == LAYOUT.name and not strict:
        return replace(blank, layout=why)
    return replace(blank, outcome="wrong", check=check, why=why, kind=_kind(trial, check))


def _kind(trial: Trial, check: str) -> str:
    if check in (LAYOUT.name, RACES.name):
        return "layout" if check == LAYOUT.name else "race"
    if not trial.case.numel:
        return "edge case"
    if check == "value":
        # no error could be measured if NaN or infinity is at a wrong place
        return "numerics" if trial.verdicts and trial.verdicts[-1].error else "special"
    return "numerics" if check == "properties" else "behaviour"


def _raised(blank: CaseOutcome, trial: Trial, strict: bool, e: Failed) -> CaseOutcome:
    why = str(e).strip().splitlines()[0]
    if e.kind == LaunchFile.__name__:
        raise UsageError(f"--launch: {e.message}")
    if e.kind in ACCESSES:
        why = why.removeprefix(f"{e.kind}: ")
        return replace(blank, outcome="wrong", check=RACES.name, why=why, kind="race")
    raised = replace(blank, why=why, lines=e.lines)
    if e.refused or e.unable:
        accepted = "" if e.static else _accepted(trial)
        if accepted:
            why = f"{why} (but {accepted} of the same shape, dtype and layout are accepted)"
            return replace(raised, outcome="wrong", check="refusal", why=why, kind="behaviour")
        return replace(raised, outcome="unable" if e.unable else "refused")
    if not trial.case.numel:
        return replace(raised, outcome="error" if strict else "edge", kind="edge case")
    return replace(raised, outcome="error", kind="behaviour")


def _accepted(trial: Trial) -> str:
    """The kind of values that a kernel accepts in place of rejected ones, in words, or ""."""
    if "first" in trial.__dict__:  # rejected later, in another check
        return "other values"
    probes = [(seed, values) for values in ("normal", "constant") for seed in SEEDS]
    for seed, values in probes:
        case = replace(trial.case, values=values, seed=trial.seed + seed)
        args = trial.operator.inputs(case, trial.device)
        args = {a.name: args.get(a.name, a.default) for a in trial.operator.args}
        try:
            trial.runner.run(trial.runner.fence(args))
        except Failed:
            continue
        return f"{values} values"
    return ""
