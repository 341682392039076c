"""Compiles a rung for any architecture, without a GPU, and reports its static properties."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from kernelwright import dispatch, toolchain
from kernelwright.contract import (
    H200,
    Case,
    Config,
    Gpu,
    Ladder,
    Launch,
    Rung,
    TensorSpec,
    Unsupported,
)
from kernelwright.dispatch.selection import config_of
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import binary, build, modes

# SMs of the GPU that represents a compute capability; plans depend on the number of SMs.
_SMS = {(8, 0): 108, (8, 6): 84, (8, 9): 142, (9, 0): 132, (10, 0): 148, (12, 0): 170}


@dataclass(frozen=True)
class Inspection:
    """One kernel launch of a rung's plan.

    Attributes:
        symbol: the kernel's name in the cubin; `kernel` is its name in the source.
        threads: threads per block.
        dynamic_shared: bytes per block, in addition to resources["static_shared"].
        resources, occupancy, instructions: fields of the dataclasses in `toolchain.binary`.
    """

    operator: str
    rung: str
    backend: str
    config: Config
    case: str
    arch: str
    kernel: str
    symbol: str
    grid: tuple[int, int, int]
    threads: int
    cluster: int
    dynamic_shared: int
    resources: dict[str, Any]
    occupancy: dict[str, Any]
    instructions: dict[str, Any]
    ptx: str
    sass: str
    ttgir: str

    def as_json(self, texts: bool = False) -> dict[str, Any]:
        """As data; with PTX, SASS and TTGIR only if `texts`."""
        d = asdict(self)
        return d if texts else {k: v for k, v in d.items() if k not in ("ptx", "sass", "ttgir")}


def inspect(
    ladder: Ladder,
    rung: str,
    case: Case | None = None,
    arch: str = "sm_90a",
    config: Config | None = None,
) -> list[Inspection]:
    """Compile a rung's plan for `arch`, one result per launch.

    Args:
        case: the case to plan for: by default the first bench case that the rung supports.
        config: by default the rung's own choice for that case.

    Raises:
        ValueError: the rung is PyTorch and has no kernel of its own; the architecture is unknown;
            the rung does not support the case (`Unsupported`).
        ToolchainError: a compiler is missing or rejects the kernel.
    """
    chosen = ladder.rung(rung)
    if not chosen.is_gpu:
        raise ValueError(
            f"rung: {ladder.name}.{rung} is a PyTorch rung, which has no kernel to compile"
        )
    gpu = gpu_of(arch)
    if case is None:
        case = _first_supported(ladder, chosen, gpu)
    if chosen.backend != "cuda" and not modes.compiling():
        return _elsewhere(ladder, rung, case, arch, config)
    return _here(ladder, chosen, case, gpu, arch, config)


def gpu_of(arch: str) -> Gpu:
    """The GPU that represents an architecture: an H200, or a similar one."""
    limits, capability = binary.sm_limits(arch), binary.capability(arch)
    if capability == H200.capability:
        return H200
    sms = _SMS.get(capability, 132)
    return replace(
        H200, capability=capability, sms=sms, shared_per_block=limits.shared_per_block, name=arch
    )


@cache
def specs_of(ladder: Ladder, case: Case) -> dict[str, Any]:
    """The normalized specs of a case. No memory is allocated: bench cases take gigabytes."""
    toolchain.claim()  # computing with meta tensors imports triton
    op = ladder.operator
    specs = {k: _spec(v) for k, v in op.inputs(case, "meta").items()}
    return op.normalise(specs)[0]


def _spec(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        offset = int(v.storage_offset()) * v.dtype.itemsize
        align = min(16, offset & -offset) if offset else 16
        return TensorSpec(tuple(v.shape), tuple(v.stride()), v.dtype, align)
    listed = isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor)
    return [_spec(t) for t in v] if listed else v


def _first_supported(ladder: Ladder, rung: Rung, gpu: Gpu) -> Case:
    cases = sorted(ladder.operator.cases, key=lambda c: ("bench", "verify", "big").index(c.use))
    for case in cases:
        if case.numel and dispatch.unsupported_on(rung, specs_of(ladder, case), gpu) is None:
            return case
    raise Unsupported(f"rung: {ladder.name}.{rung.name} supports no case on {gpu.name}")


def _here(
    ladder: Ladder, rung: Rung, case: Case, gpu: Gpu, arch: str, config: Config | None
) -> list[Inspection]:
    specs = specs_of(ladder, case)
    reason = dispatch.unsupported_on(rung, specs, gpu)
    if reason:
        raise Unsupported(f"{ladder.name}.{rung.name} does not support {case.id}: {reason}")
    if config is None:
        config = config_of(ladder, rung, gpu, specs)
    plan = dispatch.entry_of(ladder, rung)(gpu, config, **specs)
    tensors = build.Tensors(plan, ladder.operator, specs)
    head = (ladder.name, rung.name, rung.backend, config, case.id, arch)
    return [compiled(head, step, tensors, arch) for step in plan.launches]


def compiled(head: tuple, step: Launch, tensors: build.Tensors, arch: str) -> Inspection:
    """A launch compiled for `arch`. `head`: the first six fields of its Inspection."""
    kernel = build.compile(step, tensors, arch)
    resources = binary.resources(kernel)
    threads = kernel.threads or step.block[0] * step.block[1] * step.block[2]
    dynamic = kernel.shared or step.shared
    occupancy = binary.occupancy(
        arch, threads, resources.registers, resources.static_shared + dynamic
    )
    code = binary.sass(kernel)
    return Inspection(
        *head,
        kernel=build.name_of(step.kernel),
        symbol=kernel.name,
        grid=step.grid,
        threads=threads,
        cluster=getattr(step.kernel, "cluster", 1),
        dynamic_shared=dynamic,
        resources=asdict(resources),
        occupancy=asdict(occupancy),
        instructions=asdict(binary.instructions(code)),
        ptx=kernel.ptx,
        sass=code,
        ttgir=kernel.ttgir,
    )


def _elsewhere(
    ladder: Ladder, rung: str, case: Case, arch: str, config: Config | None
) -> list[Inspection]:
    """Inspect in a second process, because this one interprets Triton and simulates Numba."""
    request = json.dumps([ladder.name, rung, case.id, arch, config, str(ladder.folder)])
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=request,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines() or ["no message"]
        raise ToolchainError(f"inspecting {ladder.name}.{rung}: {last[-1]}")
    return [loaded(d) for d in json.loads(done.stdout)]


def loaded(d: Any) -> Inspection:
    """The Inspection from the result of its `as_json(texts=True)`."""
    for side in ("global_loads", "global_stores"):
        d["instructions"][side] = {int(k): n for k, n in d["instructions"][side].items()}
    d["grid"] = tuple(d["grid"])
    return Inspection(**d)


def _main() -> None:
    """The second process: reads a request from standard input, writes the result to standard
    output."""
    modes.compile_only()
    import_module("kernelwright.ops.every")  # fills the registry
    operator, rung, case, arch, config, folder = json.load(sys.stdin)
    if operator not in {known.name for known in dispatch.ladders()}:
        import_module("kernelwright.workbench.scaffold.scaffold").load(Path(folder))
    ladder = dispatch.ladder(operator)
    inspections = inspect(ladder, rung, ladder.operator.case(case), arch, config)
    json.dump([i.as_json(texts=True) for i in inspections], sys.stdout)


if __name__ == "__main__":
    _main()
