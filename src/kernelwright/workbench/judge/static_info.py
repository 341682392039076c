"""Further results for a judged kernel: its compiled properties, and the costs of a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch

from kernelwright.dispatch import specs_of
from kernelwright.machine import gpu_of
from kernelwright.workbench.verify.trial import Trial

from .sandbox.proxy import SandboxRunner
from .sandbox.sandbox import Box, Died, Failed, Limits
from .verdict import Costs

ARCH = "sm_90a"  # the architecture to compile for without a GPU


class Named(Protocol):
    """A function in a file."""

    @property
    def path(self) -> Path: ...

    @property
    def name(self) -> str: ...


def fields(box: Box, trial: Trial, target: Named, limits: Limits) -> dict[str, Any]:
    """Fields of the verdict: kernels and costs, or why they are not known."""
    kernels, no_kernels = _kernels(box, trial, target, limits)
    costs, no_costs = _costs(box, trial)
    return {
        "kernels": tuple(kernels),
        "no_kernels": no_kernels,
        "costs": costs,
        "no_costs": no_costs,
    }


def _kernels(box: Box, trial: Trial, target: Named, limits: Limits) -> tuple[list[dict], str]:
    runner = trial.runner
    assert isinstance(runner, SandboxRunner)
    fenced = runner.fence(trial.expected().args)
    gpu = gpu_of(box.device)
    arch = gpu.arch if gpu else ARCH
    try:
        told = box.process.ask("kernels", args=runner.told(fenced.args), arch=arch)
        if told.get("launches"):  # they were interpreted, so a second process compiles them
            with Box(torch.device("cpu"), limits=limits, interpret=False) as other:
                other.load(target.path, target.name, make=False)
                told = {
                    "kernels": other.process.ask("compile", launches=told["launches"], arch=arch)
                }
    except (Failed, Died) as e:
        return [], f"not available: {e}".splitlines()[0]
    if told.get("kernels"):
        return told["kernels"], ""
    return [], "not available: it launches no kernel whose binary can be read"


def _costs(box: Box, trial: Trial) -> tuple[Costs | None, str]:
    runner = trial.runner
    assert isinstance(runner, SandboxRunner)
    fenced = runner.fence(trial.expected().args)
    try:
        told = box.process.ask("costs", args=runner.told(fenced.args))
    except (Failed, Died) as e:
        return None, f"not counted: {e}".splitlines()[0]
    specs, _ = trial.operator.normalise(specs_of(trial.expected().args))
    on_gpu = box.device.type == "cuda"
    counted = "kernels seen by the profiler" if on_gpu else "operators that launch a kernel"
    least = trial.operator.cost(**specs).bytes
    peak = told.get("peak")
    return Costs(trial.case.id, told["launches"], counted, told["moved"], least, peak=peak), ""
