"""Verification in `bench` of GPU rungs that cannot be timed because there is no GPU."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.contract import H200, Case, CudaKernel, Ladder, Rung
from kernelwright.dispatch import entry_of, launcher, plan_of, specs_of, unsupported
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import availability, nvrtc
from kernelwright.workbench.verify.candidate import all_results, copy_of, expected, map_tensors
from kernelwright.workbench.verify.cuda_kernels import beyond_a_cpu
from kernelwright.workbench.verify.large_tensors import right
from kernelwright.workbench.verify.raised import one_line

VERIFIED, COMPILED, WRONG_HERE = "verified here", "compiled here", "WRONG here"


def stand_in(ladder: Ladder, rung: Rung, device: torch.device) -> str:
    """Verify a rung on a small case, interpreted or emulated, or compile it. Returns what was done,
    beginning with VERIFIED, COMPILED or WRONG_HERE, or why nothing was done."""
    try:
        return _done(ladder, rung, device)
    except Exception as e:  # noqa: BLE001 - an exception of a rung is its result
        return f"{WRONG_HERE}: {one_line(e)}"


def _done(ladder: Ladder, rung: Rung, device: torch.device) -> str:
    operator = ladder.operator
    small = [
        c for c in operator.cases
        if c.use == "verify" and c.values == "normal" and c.layout == "contiguous"
        and 30 < c.numel < 200
    ]  # fmt: skip
    why = "no small case"
    for case in small:
        inputs = operator.inputs(case, device.type)
        args = operator.with_defaults(inputs)
        specs, _ = operator.normalise(specs_of(args))
        why = rung.supports(H200, **specs) if rung.supports else None
        if why is None and rung.backend == "cuda" and _beyond(ladder, rung, case, device):
            return _compiled(ladder, rung, specs)
        why = why or unsupported(rung, specs, device)
        if why is None:
            native = entry_of(ladder, ladder.rung("native"))
            want = expected(operator, native, case, device.type)
            call = launcher(ladder, want.args, rung.name)
            args = map_tensors(want.args, copy_of)
            verdict = right(operator, want, all_results(operator, args, call(*args.values())))
            return f"{VERIFIED} on {case.id}" if verdict.ok else f"{WRONG_HERE}: {verdict.why}"
    return f"not run here: {why}"


def _beyond(ladder: Ladder, rung: Rung, case: Case, device: torch.device) -> str | None:
    """Why CUDA C++ cannot be emulated here (no compiler, an unsupported instruction), or None."""
    missing = availability.missing("cuda", device.type)
    return missing or beyond_a_cpu(ladder, rung, rung.configs[0], case)


def _compiled(ladder: Ladder, rung: Rung, specs: dict[str, Any]) -> str:
    kernels = {k.kernel for k in plan_of(ladder, rung, specs).launches}
    try:
        for kernel in kernels:
            if isinstance(kernel, CudaKernel):
                nvrtc.compile(kernel, H200.arch)
    except ToolchainError as e:
        return f"not compiled here: {e}"
    return f"{COMPILED} for {H200.arch}, not run"
