"""Runs a plan on CPU tensors, one launch after another: interpreted, simulated or emulated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelwright import emulator
from kernelwright.contract import (
    CudaKernel,
    Launch,
    NumbaKernel,
    Operator,
    Plan,
    Pointers,
    Scalar,
    TensorMap,
    TensorSpec,
    TritonKernel,
    packed,
)
from kernelwright.emulator import hopper, subprocess_runner
from kernelwright.support import includes
from kernelwright.support.errors import ToolchainError

from . import interpreter, redzones

#: Of kernels marked as not emulated without instructions of Hopper: those with WMMA.
NOT_EMULATED = "its instructions are not emulated: needs a GPU"


def executor(
    plan: Plan, operator: Operator, specs: dict[str, Any], copies: tuple[str, ...]
) -> Callable:
    """The function that runs `plan` on CPU tensors; it takes the operator's arguments in order."""
    names = [a.name for a in operator.args]
    outputs = dict(zip(operator.results, operator.outputs(**specs), strict=True))
    pointers = {a for step in plan.launches for a in step.args if isinstance(a, Pointers)}
    launchers = [_launcher(step) for step in plan.launches]
    alone = subprocess_runner.needed(plan) and not emulator.needs_this_process()

    empty = redzones.allocator() if redzones.active else _plain

    def run(*args):
        given = dict(zip(names, args, strict=True))
        values = {**given, **{n: given[n].contiguous() for n in copies}}
        results = {n: empty(n, s, "cpu") for n, s in outputs.items()}
        scratch = {
            n: empty(n, s.spec, "cpu", result=False, zero=s.zero) for n, s in plan.scratch.items()
        }
        everything = {**values, **results, **scratch, **plan.constants}
        everything |= {p: _table(p, values) for p in pointers}
        if alone:
            _launch_in_subprocess(plan, launchers, everything, fresh=(*results, *scratch))
        else:
            _launch(plan, launchers, everything)
        for n in copies:
            if n in operator.mutated:
                given[n].copy_(values[n])
        out = tuple(results.values())
        return out[0] if len(out) == 1 else out or None

    return run


def _launch(
    plan: Plan, launchers: Sequence[Callable], everything: dict[str, Any], **where: Any
) -> None:
    for step, launch in zip(plan.launches, launchers, strict=True):
        launch(step.kernel, step, [_value(a, everything) for a in step.args], **where)


def _launch_in_subprocess(
    plan: Plan, launchers: Sequence[Callable], everything: dict[str, Any], fresh: Iterable[str]
) -> None:
    """Launch in a process that may crash.

    Raises:
        Crashed: with the kernel and, if the checks find it, the line.
    """
    try:
        with subprocess_runner.shared_copies(everything) as copies:
            _launch(plan, launchers, copies.tensors, launch=copies.process.launch)
            copies.copy_back()
    except emulator.Crashed as e:
        raise emulator.Crashed(f"{e}{_out_of_bounds(plan, everything, fresh)}") from None


def _out_of_bounds(plan: Plan, everything: dict[str, Any], fresh: Iterable[str]) -> str:
    """A description of the first out-of-bounds access of a plan's launches, or ""."""
    if emulator.missing("watched"):
        return ""
    from kernelwright.emulator.checks import Watch

    look = Watch(("bounds",), seed=1)
    with look.mode():
        launchers = [_launcher(step) for step in plan.launches]

    def watched() -> str:
        _, _, findings = look.call(
            lambda *_: _launch(plan, launchers, everything), everything, fresh
        )
        return f"; {findings[0].text}" if findings else ""

    return subprocess_runner.result_in_fork(watched)


def unable(plan: Plan) -> str | None:
    """Why a plan cannot be run on a CPU, or None."""
    return next(filter(None, (_unable(step.kernel) for step in plan.launches)), None)


def emulates(kernel: CudaKernel) -> bool:
    """Whether a kernel runs on a CPU, which one with WMMA does not."""
    return kernel.emulated or hopper.needed(includes.texts(kernel.source))


def _unable(kernel: CudaKernel | TritonKernel | NumbaKernel) -> str | None:
    if isinstance(kernel, CudaKernel) and not emulates(kernel):
        return NOT_EMULATED
    return None


def _plain(name: str, spec: TensorSpec, device: str, *, result=True, zero=False):
    """Allocates like `redzones.Guard.empty`, without red zones."""
    t = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=device)
    return t.zero_() if zero else t


def _launcher(step: Launch) -> Callable:
    """`run(kernel, step, values)` for a launch, in the language of its kernel."""
    if isinstance(step.kernel, TritonKernel):
        return interpreter.launch
    if isinstance(step.kernel, NumbaKernel):
        from . import numba_rt

        return numba_rt.simulate
    if not emulates(step.kernel):
        raise ToolchainError(f"{step.kernel.name}: {NOT_EMULATED}")
    return emulator.launcher(step)


def _table(pointers: Pointers, values: dict[str, Any]) -> torch.Tensor:
    """Memory for a table of addresses."""
    return torch.empty((len(values[pointers.lists[0]]), len(pointers.lists)), dtype=torch.int64)


def _value(arg: str | Scalar | Pointers | TensorMap, everything: dict[Any, Any]):
    if isinstance(arg, TensorMap):
        address = _value(arg.tensor, everything).data_ptr()
        if address % 16:
            raise ToolchainError(f"tensor map of {arg.tensor}, which is not aligned to 16 bytes")
        return packed(hopper.encoded(arg, address))
    if isinstance(arg, Pointers):
        rows = zip(*(everything[name] for name in arg.lists), strict=True)
        pointers = torch.tensor([t.data_ptr() for row in rows for t in row], dtype=torch.int64)
        return everything[arg].copy_(pointers.view_as(everything[arg]))
    if isinstance(arg, Scalar):
        return arg if not isinstance(arg.value, str) else replace(arg, value=everything[arg.value])
    element = re.fullmatch(r"(\w+)\[(\d+)\]", arg)
    value = everything[element[1]][int(element[2])] if element else everything[arg]
    return value.detach()
