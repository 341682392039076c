"""Plans for GPUs that are not here, from their recorded properties."""

import random

import pytest
import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import H200
from kernelwright.dispatch import entry_of, ladder, ladders, selection, unsupported_on
from kernelwright.dispatch.selection import config_for
from kernelwright.machine.recorded import A100, B200, GPUS, L40S, RTX_5090
from kernelwright.toolchain import availability
from kernelwright.workbench import listing
from kernelwright.workbench.verify.limits import misfits

RUNGS = [(x, r) for x in ladders() for r in x.rungs if r.is_gpu and r.dispatchable]
QUICK = (A100, RTX_5090)  # the oldest, and the one with the least shared memory


def plans(chosen, rung, gpu):
    """(plan, specs) of the bench cases that a rung supports on a GPU, with its default config."""
    for case in chosen.operator.cases:
        if case.use == "bench":
            specs = listing.specs_of(chosen, case)
            if unsupported_on(rung, specs, gpu) is None:
                yield entry_of(chosen, rung)(gpu, config_for(rung, gpu, specs), **specs), specs


@pytest.mark.parametrize(
    "gpu",
    [g if g in QUICK else pytest.param(g, marks=pytest.mark.long) for g in GPUS],
    ids=lambda g: g.arch,
)
def test_every_plan_fits_the_gpu(gpu):
    found = [
        f"{chosen.name}.{rung.name}: {why}"
        for chosen, rung in RUNGS
        for plan, specs in plans(chosen, rung, gpu)
        for why in misfits(plan, chosen.operator, specs, gpu, compiled=False)
    ]
    assert found == []


@pytest.mark.parametrize("gpu", [g for g in GPUS if g is not H200], ids=lambda g: g.arch)
def test_compiled_kernels_fit_the_gpu(gpu, request):
    """The CUDA C++ kernels of a rung's heuristic on a GPU with less memory than an H200: for one
    rung or, with `--all`, for every rung."""
    rng = random.Random(gpu.arch)
    cuda = [(x, r) for x, r in RUNGS if r.backend == "cuda"]
    rng.shuffle(cuda)
    for chosen, rung in cuda:
        taken = list(plans(chosen, rung, gpu))
        if taken:
            plan, specs = rng.choice(taken)
            assert list(misfits(plan, chosen.operator, specs, gpu, compiled=True)) == []
            if not request.config.option.all:
                return


def test_a_plan_for_a_larger_gpu_does_not_fit():
    """A plan that fits the shared memory of an H200 does not fit that of an L40S."""
    chosen = ladder("layer_norm.backward")
    rung = chosen.rung("cuda_block")
    found = {
        gpu: [
            why
            for plan, specs in plans(chosen, rung, gpu)
            for why in misfits(plan, chosen.operator, specs, L40S, compiled=False)
        ]
        for gpu in (H200, L40S)
    }
    assert any("bytes of shared memory" in why for why in found[H200])
    assert found[L40S] == []


@pytest.mark.parametrize(
    ("gpu", "says"), [(A100, "derived"), (H200, "measured fastest by kernelwright tune on sm_90"),
                      (B200, "measured fastest by kernelwright tune on sm_90")]
)  # fmt: skip
def test_explain_says_measured_or_derived(gpu, says, monkeypatch):
    monkeypatch.setattr(selection, "gpu_of", lambda device: gpu)
    monkeypatch.setattr(availability, "missing", lambda *_: None)
    args = {"x": torch.empty(4096, 768, dtype=torch.bfloat16), "dim": -1}
    found = selection.explain(ladder("softmax"), args, torch.device("cuda", 0), None)
    assert found.serves.why.startswith(says)
    assert says in str(found)
