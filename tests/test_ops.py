"""Operator x rung x case on whatever this machine has, through the checks that `verify` runs.

What a machine leaves out is counted with its reason and compared with expected_skips.txt by
conftest.py.
"""

import pytest

from kernelwright.dispatch import ladders
from kernelwright.workbench.kernels import compile_rung
from kernelwright.workbench.verify import here, verify_case
from kernelwright.workbench.where import skip

RUNGS = [(ladder, rung) for ladder in ladders() for rung in ladder.rungs]


def pairs():
    """Every (ladder, rung, case) that this machine runs; the others are counted."""
    for ladder, rung in RUNGS:
        for case in ladder.operator.cases:
            if skip(ladder, rung, rung.configs[0], case, here()) is None:
                yield pytest.param(ladder, rung, case, id=f"{ladder.name}.{rung.name}-{case.id}")


@pytest.mark.parametrize(("ladder", "rung", "case"), list(pairs()))
def test_rung_on_case(ladder, rung, case, record_property):
    record_property("rung", f"{ladder.name}.{rung.name}")
    for config in rung.configs:
        if skip(ladder, rung, config, case, here()):
            continue
        found = verify_case(ladder, rung, config, case)
        if found.outcome == "skipped":
            record_property("skipped", found.why)
            pytest.skip(found.why)
        assert found.outcome == "pass", f"{config}: {found.check}: {found.why}"


@pytest.mark.skipif(here() == "cuda", reason="runs them instead")
@pytest.mark.parametrize(
    ("ladder", "rung"),
    [pytest.param(x, r, id=f"{x.name}.{r.name}") for x, r in RUNGS if r.backend == "cuda"],
)
def test_cuda_rung_compiles(ladder, rung):
    """What an emulator runs here, for GPUs too."""
    outcome, why = compile_rung(ladder, rung, rung.configs[0])
    assert outcome == "compiled", why
