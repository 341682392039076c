"""Judges the functions in judged/user.py."""

from dataclasses import replace

import torch

from kernelwright.workbench.judge.judge import judge
from kernelwright.workbench.judge.sandbox.sandbox import Limits
from kernelwright.workbench.judge.spec import subject_of
from support.paths import FIXTURES

FOLDER = FIXTURES / "judged"
USER = FOLDER / "user.py"
SMALL = "5x33-f32-dim=-1"
GPU = torch.cuda.is_available()
QUICK = Limits(call_s=60)


def judged(name, box, what="softmax", cases=(SMALL,), **how):
    how = {"describe": False, **how}
    return judge(f"{USER}:{name}", what, cases=list(cases), box=box, **how)


def only_native(*cases, of="softmax"):
    """An operator with some cases and only PyTorch's rung; others would be compiled and timed."""
    whole = subject_of(of)
    cases = tuple(whole.operator.case(c) if isinstance(c, str) else c for c in cases)
    operator, rungs = replace(whole.operator, cases=cases), (whole.ladder.rung("native"),)
    ladder = replace(whole.ladder, operator=operator, rungs=rungs)
    return replace(whole, operator=operator, ladder=ladder)
