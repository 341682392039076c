"""Runs the kernels of a lesson through plans, like rungs: in the emulator, where their accesses are
counted and drawn, or on a GPU, where they are timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelwright import emulator, toolchain
from kernelwright.contract import Cost, CudaKernel, Launch, Operator, Plan, Scalar, TensorSpec
from kernelwright.emulator import dissect
from kernelwright.emulator.checks import Finding, Watch
from kernelwright.emulator.dissect import Dissected
from kernelwright.emulator.trace import Trace, Traced
from kernelwright.machine import clock
from kernelwright.machine.stats import median
from kernelwright.support.errors import ToolchainError

from .tables import HERE, Table


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel on given tensors.

    Attributes:
        name: its name in tables.
        kernel: a C++ name expression.
        args: names of tensors and Scalars, in the kernel's order.
        inputs, outputs: tensors by name; the kernel writes every element of the outputs.
        expected: the correct outputs by name, compared after each run.
        shared: dynamic shared memory, bytes.
        then: further launches on the same tensors.
        bytes: the bytes that the kernel must read and write, for its rate.
    """

    name: str
    source: Path
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[str | Scalar, ...]
    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, TensorSpec]
    expected: Mapping[str, torch.Tensor] = field(default_factory=dict)
    shared: int = 0
    bytes: int = 0
    then: tuple[Launch, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        kernel = CudaKernel(self.source, self.kernel)
        return Launch(kernel, self.grid, self.args, self.block, self.shared), *self.then


class WrongResult(Exception):
    """The result of a lesson's kernel is not the expected one."""


def counted(calls: Sequence[Call]) -> dict[str, Dissected]:
    """The costs of each call's launch, by its name.

    Raises:
        ToolchainError: there is no C++ compiler here. WrongResult.
    """
    look = dissect.Dissection()
    with _observed(look, calls):
        runs = [_bound(c, torch.device("cpu")) for c in calls]
    return {
        c.name: look.call(partial(_verified, c, run), dict(c.inputs))[0]
        for c, run in zip(calls, runs, strict=True)
    }


def traced(calls: Sequence[Call]) -> dict[str, Traced]:
    """The requests of the first warp of each call, by its name.

    Raises:
        ToolchainError: there is no C++ compiler here. WrongResult.
    """
    look = Trace()
    with _observed(look, calls):
        runs = [_bound(c, torch.device("cpu")) for c in calls]
    return {
        c.name: look.call(partial(_verified, c, run), dict(c.inputs))[0]
        for c, run in zip(calls, runs, strict=True)
    }


def results(call: Call) -> dict[str, torch.Tensor]:
    """The outputs of a call in the emulator, by name.

    Raises:
        ToolchainError: there is no C++ compiler here. WrongResult.
    """
    if missing := emulator.missing():
        raise ToolchainError(missing)
    out = _verified(call, _bound(call, torch.device("cpu")), *call.inputs.values())
    return dict(zip(call.outputs, (out,) if isinstance(out, torch.Tensor) else out, strict=True))


def findings(call: Call, checks: tuple[str, ...] = ("races",)) -> list[Finding]:
    """The findings of the checks in a call, with its threads in another order.

    Raises:
        ToolchainError: there is no C++ compiler here.
    """
    look = Watch(checks, seed=1)
    with _observed(look, [call], "watched"):
        run = _bound(call, torch.device("cpu"))
    return list(look.call(run, dict(call.inputs), tuple(call.outputs))[2])


def times(name: str, title: str, calls: Sequence[Call], device: torch.device) -> Table:
    """Times of calls on a GPU, interleaved; their tensors are copied there.

    Raises:
        ToolchainError: a kernel cannot be built. WrongResult.
    """
    with clock.session(device):
        candidates = [_candidate(c, device) for c in calls]
        measured = clock.measure(candidates, device, clock.QUICK).times
    rows: list[tuple[str, float, float]] = []
    for c in calls:
        if measured[c.name].error:
            raise ToolchainError(f"{c.name}: {measured[c.name].error}")
        us = median(measured[c.name].cold)
        rows.append((c.name, us, c.bytes / us / 1e3))
    return Table(name, title, ("kernel", "µs", "GB/s"), tuple(rows), HERE)


def _candidate(call: Call, device: torch.device) -> clock.Candidate:
    run = _bound(call, device)
    inputs = {n: t.to(device) for n, t in call.inputs.items()}
    _verified(call, run, *inputs.values())
    sets = clock.rotations(call.bytes, device)
    copies = [[t.clone() for t in inputs.values()] for _ in range(sets)]
    return clock.Candidate(call.name, [partial(run, *c) for c in copies], call.bytes)


def _observed(look: Any, calls: Sequence[Call], kind: str = "dissected"):
    if missing := emulator.missing(kind):
        raise ToolchainError(missing)
    with look.mode():
        kernels = [x.kernel for c in calls for x in c.launches]
        emulator.ensure([k for k in kernels if isinstance(k, CudaKernel)])
    return look.mode()


def _bound(call: Call, device: torch.device) -> Callable[..., Any]:
    takes = ", ".join(f"Tensor {n}" for n in call.inputs)
    gives = ", ".join(f"Tensor {n}" for n in call.outputs)
    operator = Operator(
        name="lesson",
        schema=f"({takes}) -> ({gives})",
        reference=lambda **_: None,
        inputs=lambda case, device: {},
        cases=(),
        cost=lambda **_: Cost((), ()),
        outputs=lambda **_: tuple(call.outputs.values()),
    )
    plan = Plan(call.launches)
    specs = {n: TensorSpec.of(t) for n, t in call.inputs.items()}
    return toolchain.executor(plan, operator, specs, (), device)


def _verified(call: Call, run: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    out = run(*inputs)
    by_output = dict(
        zip(call.outputs, (out,) if isinstance(out, torch.Tensor) else out, strict=True)
    )
    for name, right in call.expected.items():
        if not torch.allclose(by_output[name].cpu(), right, rtol=1e-4, atol=1e-4):
            raise WrongResult(f"{call.name}: {name} differs from the lesson's")
    return out
