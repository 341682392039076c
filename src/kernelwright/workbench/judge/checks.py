"""The checks of a judged kernel: those that rungs pass, and some that only a stranger needs."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.contract import contiguous_strides
from kernelwright.contract.layout import normalise
from kernelwright.dispatch import specs_of
from kernelwright.workbench.verify.candidate import Trial
from kernelwright.workbench.verify.checks import CHECKS, Check, differs


def layout(trial: Trial) -> str | None:
    """A result has the strides that the operator promises, those of PyTorch's result, or is
    contiguous."""
    op, run = trial.operator, trial.first
    specs, _ = normalise(op.layout, specs_of(run.fenced.args))
    natives = trial.expected().native
    for name, out, want, native in zip(
        op.results, run.outputs, op.outputs(**specs), natives, strict=False
    ):
        allowed = (want.strides, native.stride(), contiguous_strides(want.shape))
        why = [differs(out, replace(want, strides=strides)) for strides in allowed]
        if all(why):
            return f"{name}'s {why[0]}"
    return None


LAYOUT = Check("layout", layout)

#: A user's function has no fake to be compared with.
ASKED = (*(c for c in CHECKS if c.name != "fake"), LAYOUT)

#: What a check asks that is no function of a trial.
REFUSAL = "An input may be refused by its shape, dtype, device and layout, not by its values"


def meaning(check: str) -> str:
    """What a check asks: the first sentence of its description."""
    if check == "refusal":
        return REFUSAL
    found = next((c for c in ASKED if c.name == check), None)
    words = " ".join((found.run.__doc__ or "").split()) if found else ""
    return words.split(". ")[0].rstrip(".")
