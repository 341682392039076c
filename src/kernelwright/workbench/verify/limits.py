"""Whether a plan fits a GPU: compares the requirements of its launches with its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernelwright.contract import Gpu, Launch, NumbaKernel, Operator, Plan
from kernelwright.toolchain import binary, build

THREADS, REGISTERS = 1024, 65_536  # per block
GRID = (2**31 - 1, 65_535, 65_535)
CLUSTER = 16  # blocks; more than 8 only if a kernel opts in


def misfits(
    plan: Plan, operator: Operator, specs: dict[str, Any], gpu: Gpu, *, compiled: bool
) -> Iterator[str]:
    """The requirements of a plan for a call with `specs` that exceed a GPU's limits.

    Args:
        compiled: also compile the kernels, and include their registers and static shared memory.

    Raises:
        ToolchainError: a kernel is not compiled for this GPU.
    """
    tensors = build.Tensors(plan, operator, specs) if compiled else None
    for step in plan.launches:
        for what, asked, limit in _asked(step, gpu, tensors):
            if asked > limit:
                yield f"{build.name_of(step.kernel)}: {what}: {asked} of {limit} on {gpu.name}"


def _asked(step: Launch, gpu: Gpu, tensors: build.Tensors | None) -> Iterator[tuple[str, int, int]]:
    """(what, how much, the limit)."""
    for blocks, limit in zip(step.grid, GRID, strict=True):
        yield "blocks", blocks, limit
    cluster = getattr(step.kernel, "cluster", 1)
    yield "blocks of a cluster", cluster, CLUSTER if gpu.capability >= (9, 0) else 1
    yield "blocks beyond whole clusters", step.grid[0] % cluster, 0
    threads, shared = step.block[0] * step.block[1] * step.block[2], step.shared
    if tensors is not None and not isinstance(step.kernel, NumbaKernel):
        compiled = build.compile(step, tensors, gpu.arch)
        resources = binary.resources(compiled)
        threads = compiled.threads or threads
        shared = (compiled.shared or shared) + resources.static_shared
        yield "registers per block", resources.registers * threads, REGISTERS
    yield "threads per block", threads, THREADS
    yield "bytes of shared memory", shared, gpu.shared_per_block
