"""Operator x rung x config x case on this machine, through the checks of `verify`: a cover of them
(cover.py), or with `--all` every one.

A rung rejects the same cases on every machine. They are listed in refused/, so that a rung that
rejects more is noticed; `pytest tests/ops/test_ops.py --write-refused` writes the lists.
"""

import re

import pytest

from kernelwright.contract import H200
from kernelwright.dispatch import ladders, unsupported_on
from kernelwright.workbench import inspection
from kernelwright.workbench.verify.cuda_kernels import GPUS, compile_rung, of_a_cpu
from kernelwright.workbench.verify.verify import here, verify_case
from support import cover
from support.paths import FIXTURES

LADDERS = ladders()
REFUSED = FIXTURES / "refused"


def pytest_generate_tests(metafunc):
    if "run" in metafunc.fixturenames:
        runs = cover.every if cover.everything(metafunc.config) else cover.dealt
        found = [(x, r) for x in LADDERS for r in runs(x)]
        # run in one process: cases of a GPU's whole memory, rungs that load inductor
        found.sort(key=lambda f: (f[1].case.use != "big", f[1].rung.backend == "inductor"))
        ids = [f"{ladder.name}.{run.rung.name}-{run.case.id}" for ladder, run in found]
        metafunc.parametrize(("ladder", "run"), found, ids=ids)


def test_rung_on_case(ladder, run, request):
    among = of_a_cpu if cover.everything(request.config) else cover.among
    for config in run.configs:
        found = verify_case(ladder, run.rung, config, run.case, run.checks, among)
        if found.outcome == "skipped":
            pytest.skip(found.why)
        assert found.outcome == "pass", f"{config}: {found.check}: {found.why}"


def refused(ladder):
    """A line for each rung that rejects a case: how many non-empty cases it takes, and the reasons
    for the others without their numbers."""
    cases = [c for c in ladder.operator.cases if c.use == "verify" and c.numel]
    specs = [inspection.specs_of(ladder, c) for c in cases]
    for rung in ladder.rungs:
        why = [rung.supports(H200, **s) for s in specs] if rung.supports else []
        reasons = sorted({re.sub(r"\d+", "#", w) for w in why if w})
        if reasons:
            taken = f"{why.count(None)} of {len(why)}"
            yield f"{ladder.name}.{rung.name}: {'; '.join((taken, *reasons))}\n"


@pytest.mark.parametrize("folder", sorted({x.folder.name for x in LADDERS}))
def test_rungs_refuse_what_is_written_down(folder, request):
    found = "".join(line for x in LADDERS if x.folder.name == folder for line in refused(x))
    file = REFUSED / f"{folder}.txt"
    if request.config.option.write_refused:
        file.write_text(found)
    assert found == file.read_text(), (
        "if that is meant: pytest tests/ops/test_ops.py --write-refused"
    )


CUDA = [(x, r) for x in LADDERS for r in x.rungs if r.backend == "cuda"]


@pytest.mark.skipif(here() == "cuda", reason="runs them instead")
@pytest.mark.parametrize("which", range(len(CUDA)), ids=[f"{x.name}.{r.name}" for x, r in CUDA])
def test_cuda_rung_compiles(which, request):
    """What an emulator runs here, for GPUs too. With `--all` whatever the cases launch for every
    GPU, without it a case of each rung for one GPU, in turn; for an H200 if the rung needs one. Of
    the rungs that an emulator runs, every second one."""
    ladder, rung = CUDA[which]
    cases, gpus = None, GPUS
    if not cover.everything(request.config):
        if which % 2 and cover.runs_here(ladder, rung):
            pytest.skip("the emulator compiles it")
        case, gpu = cover.compiled(ladder, rung), GPUS[which % len(GPUS)]
        refused = unsupported_on(rung, inspection.specs_of(ladder, case), gpu)
        cases, gpus = [case], (H200,) if refused else (gpu,)
    outcome, why = compile_rung(ladder, rung, rung.configs[0], cases, gpus)
    assert outcome == "compiled", why
