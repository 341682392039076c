"""Every wrong kernel is caught by `judge`, in a separate process, by the expected check."""

from dataclasses import replace

import pytest
import torch
from wrong.cheats import CHEATS
from wrong.kernels import NATIVE, WRONG

from kernelwright.workbench.judge.judge import judge
from kernelwright.workbench.judge.spec import Subject
from support.paths import FIXTURES

FOLDER = FIXTURES / "wrong"
GPU = torch.cuda.is_available()
#: Fakes are registered by operators, not by users' functions.
EVERY = [w for w in WRONG + CHEATS if w.check != "fake"]


def judged(wrong, file, box):
    wider = (c for c in wrong.operator.cases if c.use == "verify" and c.numel > wrong.case.numel)
    cases = (wrong.case, *(c for c in wider if c.params == wrong.case.params))
    subject = Subject("softmax", replace(wrong.operator, cases=cases), wrong.native)
    target = f"{FOLDER / file}:{wrong.name}"
    own = None if wrong.check == "arguments only read" else box  # that check ends the process
    return judge(
        target, subject, make=True, cases=[wrong.case.id], box=own, strict=True, describe=False
    )


@pytest.mark.parametrize("wrong", EVERY, ids=lambda w: w.name)
def test_its_check_catches_it(wrong, box):
    if wrong.gpu and not GPU:
        pytest.skip("needs a GPU")
    verdict = judged(wrong, "kernels.py" if wrong in WRONG else "cheats.py", box)
    assert (verdict.outcome, verdict.exit_code) == ("wrong", 1), verdict
    check = "layout" if wrong.name == "wrong_strides" else wrong.check
    first = {check, *(["current stream"] if GPU and wrong.check == "fresh data" else [])}
    assert verdict.smallest.check in first, verdict.smallest  # on a GPU that check runs first
    assert verdict.smallest.command.endswith(f"--case {wrong.case.id} --seed {verdict.seed}")


@pytest.mark.parametrize("operator", NATIVE, ids=lambda op: op.name)
def test_the_right_kernel_passes(operator, box):
    c = next(c for c in operator.cases if c.numel > 32)
    subject = Subject(operator.name, operator, NATIVE[operator])
    name = "softmax" if "softmax" in operator.name else "tanh"
    name = "gelu_reference" if "gelu" in operator.name else name
    verdict = judge(f"{FOLDER / 'kernels.py'}:{name}", subject, cases=[c.id], box=box)
    assert verdict.outcome == "right", verdict.smallest
