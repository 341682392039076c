"""The checks of a judged kernel: those of rungs, and some that only foreign code needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kernelwright.contract import contiguous_strides
from kernelwright.dispatch import specs_of
from kernelwright.emulator.checks import CHECKS as EMULATOR_CHECKS
from kernelwright.workbench.verify import checks
from kernelwright.workbench.verify.candidate import Expected, copy_of, same_bits
from kernelwright.workbench.verify.checks import CHECKS, Check, differs
from kernelwright.workbench.verify.trial import Trial

from .sandbox.proxy import SandboxRunner
from .sandbox.sandbox import Died, Failed


def layout(trial: Trial) -> str | None:
    """A result has the strides that the operator specifies or those of PyTorch's result, or it is
    contiguous."""
    op, run = trial.operator, trial.first
    specs, _ = op.normalise(specs_of(run.fenced.args))
    natives = trial.expected().native
    for name, out, want, native in zip(
        op.results, run.outputs, op.outputs(**specs), natives, strict=False
    ):
        allowed = (want.strides, native.stride(), contiguous_strides(want.shape))
        why = [differs(out, replace(want, strides=strides)) for strides in allowed]
        if all(why):
            return f"{name}'s {why[0]}"
    return None


def races_and_bounds(trial: Trial) -> str | None:
    """No two threads race, no access is out of bounds, nothing uninitialized is read, and all
    threads reach each barrier (CUDA C++ without a GPU)."""
    runner = trial.runner
    assert isinstance(runner, SandboxRunner)
    if not runner.watchable or trial.case.numel > WATCHED:
        return None
    findings = runner.watched(trial.fence())
    return next((f"{c}: {findings[c]}" for c in EMULATOR_CHECKS if c in findings), None)


def only_read(trial: Trial) -> str | None:
    """Arguments are not written during a call, not even if they are restored at its end. Without a
    GPU their memory is read-only; on a GPU, the version counters of PyTorch's operators show it."""
    runner = trial.runner
    assert isinstance(runner, SandboxRunner)
    if not runner.lockable:
        return None
    try:
        results = runner.run(trial.fence(), locked=True)
    except Died as e:
        if "SIGSEGV" in str(e) or "SIGBUS" in str(e):
            return f"an argument is written during the call, and restored: {e}"
        raise
    return "an argument is written during the call, and restored" if results.written else None


def tail_changed(trial: Trial) -> str | None:
    """Results are right after only the last eighth of each argument has changed, at the same
    address: no result is cached by the first values of an argument."""
    want = trial.expected(tail=1)
    fenced = trial.fence()
    trial.run(fenced)
    fenced.refill(want.args)
    return trial.judge(trial.run(fenced).results, want)


def middle_changed(trial: Trial) -> str | None:
    """Results are right after the first and the last eighth of each floating-point argument stay
    the same, at the same address: no result is cached by an argument's ends."""
    old, new = trial.expected().args, trial.expected(seed=1).args
    mixed = {n: _mixed(v, new[n]) for n, v in old.items()}
    if all(mixed[n] is v for n, v in old.items()):
        return None
    operator = replace(trial.operator, inputs=lambda case, device: mixed)
    want = Expected(operator, trial.candidate.native, trial.case, trial.device)
    fenced = trial.fence()
    trial.run(fenced)
    fenced.refill(want.args)
    return trial.judge(trial.run(fenced).results, want)


def _mixed(old: Any, new: Any) -> Any:
    """A tensor with the values of `old` at its ends and of `new` between them; other values, and
    integers, which may be positions of others, as they are."""
    same = isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)
    if not same or old.shape != new.shape or not old.is_floating_point() or 0 in old.stride():
        return old
    n, out = old.numel(), copy_of(old)
    at = torch.arange(n, device=old.device).reshape(old.shape)
    return out.copy_(torch.where((at >= n // 8) & (at < n - n // 8), new, old)) if n > 8 else old


def results_kept(trial: Trial) -> str | None:
    """Results of many calls share no memory while all of them are in use: they are not taken from a
    pool. One case of a kernel is enough."""
    runner = trial.runner
    assert isinstance(runner, SandboxRunner)
    if "results kept" in runner.box.done:
        return None
    runner.box.done.add("results kept")
    first = trial.first
    before, taken = [r.clone() for r in first.outputs], set(first.storages)
    runs, fenced = [first], trial.fence(seed=1)
    for _ in range(KEPT):
        run = trial.run(fenced)
        for name, out, at in zip(trial.operator.results, run.outputs, run.storages, strict=False):
            if out.numel() and at in taken:
                return (
                    f"{name} of call {len(runs) + 1} is in the memory of an earlier call's result"
                )
        taken |= set(run.storages)
        runs.append(run)
    for name, a, now in zip(trial.operator.results, before, first.reread(), strict=False):
        if not same_bits(a, now):
            return f"{name} of a call was changed by a later call"
    return None


def another_shape(trial: Trial) -> str | None:
    """A call of one shape is right again after a call of another supported shape."""
    runner = trial.runner
    assert isinstance(runner, SandboxRunner)
    while (other := trial.candidate.sibling(trial.case)) is not None:
        try:
            return checks.another_shape(trial)
        except Failed as e:
            if not (e.refused or e.unable) or other.id in runner.refused:
                raise
        trial.run(trial.fence(seed=1))  # this shape is still accepted; the other one was rejected
        runner.refused.add(other.id)
    return None


KEPT = 32  # results that are in use at a time
WATCHED = 2**13  # elements of the largest case whose memory accesses are checked
RACES = Check("races and bounds", races_and_bounds, again=True)
LAYOUT = Check("layout", layout)
_AFTER = {
    "arguments untouched": Check("arguments only read", only_read, again=True),
    "fresh data": Check("tail changed", tail_changed, again=True),
    "tail changed": Check("middle changed", middle_changed, again=True),
    "results apart": Check("results kept", results_kept, again=True),
}
_INSTEAD = {"another shape": Check("another shape", another_shape, again=True)}


def _asked() -> tuple[Check, ...]:
    """The checks without that of the fake, which a user's function does not have."""
    asked = [RACES]
    for check in CHECKS:
        asked += [_INSTEAD.get(check.name, check)] if check.name != "fake" else []
        while asked and asked[-1].name in _AFTER:
            asked.append(_AFTER[asked[-1].name])
    return (*asked, LAYOUT)


ASKED = _asked()

#: The description of a check that is not a function of a trial.
REFUSAL = "An input may be refused by its shape, dtype, device and layout, not by its values"


def meaning(check: str) -> str:
    """What a check verifies: the first sentence of its description."""
    if check == "refusal":
        return REFUSAL
    named = next((c for c in ASKED if c.name == check), None)
    words = " ".join((named.run.__doc__ or "").split()) if named else ""
    return words.split(". ")[0].rstrip(".")
