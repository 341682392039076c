"""The CUDA kernels that a rung's cases launch: built together for the CPU, or compiled for GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from kernelwright import emulator
from kernelwright.contract import H200, Case, Config, CudaKernel, Gpu, Ladder, Rung
from kernelwright.dispatch import entry_of, plan_of, proven_on, specs_of, unsupported_on
from kernelwright.machine.recorded import GPUS
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import cpu_executor, nvrtc

from .coverage import skip
from .raised import in_folder


def kernels_of(
    ladder: Ladder, rung: Rung, config: Config, cases: Iterable[Case], gpu: Gpu = H200
) -> list[CudaKernel]:
    """The kernels of the cases that the rung supports on `gpu`, without duplicates, by name."""
    kernels: set[CudaKernel] = set()
    for case in cases:
        if not case.numel:
            continue
        specs = specs_of_case(ladder, case)
        if unsupported_on(rung, specs, gpu) is None:
            plan = entry_of(ladder, rung)(gpu, config, **specs)
            steps = (step.kernel for step in plan.launches)
            kernels |= {k for k in steps if isinstance(k, CudaKernel)}
    return sorted(kernels, key=lambda k: k.name)


@cache
def specs_of_case(ladder: Ladder, case: Case) -> dict[str, Any]:
    """A case's arguments as normalized specs, for planning a rung."""
    inputs = ladder.operator.inputs(case, "cpu")
    args = ladder.operator.with_defaults(inputs)
    return ladder.operator.normalise(specs_of(args))[0]


def of_a_cpu(ladder: Ladder, rung: Rung) -> Iterator[tuple[Config, Case]]:
    """The configs and cases that `verify` runs without a GPU."""
    for config in rung.configs:
        for case in ladder.operator.cases:
            if not skip(ladder, rung, config, case, "cpu"):
                yield config, case


@cache
def refusal(
    ladder: Ladder,
    rung: Rung,
    among: Callable[[Ladder, Rung], Iterable[tuple[Config, Case]]] = of_a_cpu,
) -> str | None:
    """Build all kernels needed to verify the rung on a CPU, for all configs together. Returns why
    this failed, or None. `among`: the configs and cases that will run."""
    wanted: set[CudaKernel] = set()
    for config, case in among(ladder, rung):
        wanted |= {k for k in kernels_of(ladder, rung, config, [case]) if cpu_executor.emulates(k)}
    try:
        emulator.ensure(wanted)
    except ToolchainError as e:
        return f"{type(e).__name__}: {e}"
    return None


def beyond_a_cpu(ladder: Ladder, rung: Rung, config: Config, case: Case) -> str | None:
    """Why a case of a rung can be neither emulated nor interpreted, or None."""
    return cpu_executor.unable(plan_of(ladder, rung, specs_of_case(ladder, case), config=config))


def compile_rung(
    ladder: Ladder,
    rung: Rung,
    config: Config,
    cases: Iterable[Case] | None = None,
    gpus: tuple[Gpu, ...] = GPUS,
) -> tuple[str, str]:
    """Compile the kernels of the verify cases (or of the given ones) for GPUs: all of them for the
    H200's architecture, and one instantiation of each for every other architecture that the rung
    targets, for which `supports` accepts a case. Returns (outcome, what was done)."""
    if cases is None:
        cases = [c for c in ladder.operator.cases if c.use == "verify"]
    done: list[str] = []
    try:
        for gpu in gpus:
            kernels = kernels_of(ladder, rung, config, cases, gpu)
            if gpu is not H200:
                kernels = list({re.sub("<.*", "", k.name): k for k in kernels}.values())
            for kernel in kernels:
                nvrtc.compile(kernel, gpu.arch)
            if kernels:
                done.append(f"{len(kernels)} for {gpu.arch}")
    except Exception as e:  # noqa: BLE001 - whatever a rung raises is its outcome, and is shown
        return "error", in_folder(ladder, e)
    machines = proven_on(ladder, rung)
    proof = f"proven on {', '.join(machines)}" if machines else "unproven"
    return "compiled", f"kernels compiled here: {', '.join(done)}; {proof}"
