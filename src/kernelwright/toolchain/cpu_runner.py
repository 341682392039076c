"""Runs a plan on CPU tensors, a launch after the other: interpreted, simulated or emulated."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kernelwright.contract import (
    Launch,
    NumbaKernel,
    Operator,
    Plan,
    Pointers,
    Scalar,
    TensorSpec,
    TritonKernel,
)

from . import emulator, interpreter, memory
from .errors import ToolchainError


def bind(
    plan: Plan, operator: Operator, specs: dict[str, Any], copies: tuple[str, ...]
) -> Callable:
    """The function that runs `plan` on CPU tensors; it takes the operator's arguments in order."""
    names = [a.name for a in operator.args]
    outputs = dict(zip(operator.results, operator.outputs(**specs), strict=True))
    launchers = [_launcher(step) for step in plan.launches]

    empty = memory.allocator() if memory.active else _plain

    def run(*args):
        given = dict(zip(names, args, strict=True))
        values = {**given, **{n: given[n].contiguous() for n in copies}}
        results = {n: empty(n, s, "cpu") for n, s in outputs.items()}
        scratch = {
            n: empty(n, s.spec, "cpu", result=False, zero=s.zero) for n, s in plan.scratch.items()
        }
        everything = {**values, **results, **scratch, **plan.constants}
        for step, launch in zip(plan.launches, launchers, strict=True):
            launch(step.kernel, step, [_value(a, everything) for a in step.args])
        for n in copies:
            if n in operator.mutated:
                given[n].copy_(values[n])
        out = tuple(results.values())
        return out[0] if len(out) == 1 else out or None

    return run


def unable(plan: Plan) -> str | None:
    """Why a plan cannot be run on a CPU, or None."""
    kernels = [step.kernel for step in plan.launches]
    reasons = (interpreter.unable(k) for k in kernels if isinstance(k, TritonKernel))
    return next(filter(None, reasons), None)


def _plain(name: str, spec: TensorSpec, device: str, *, result=True, zero=False):
    """Allocates as a guard does, with nothing around."""
    t = torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=device)
    return t.zero_() if zero else t


def _launcher(step: Launch) -> Callable:
    """`run(kernel, step, values)` for a launch, in the language of its kernel."""
    if isinstance(step.kernel, TritonKernel):
        reason = interpreter.unable(step.kernel)
        if reason:
            raise ToolchainError(f"{step.kernel.fn.__name__}: {reason}")
        return interpreter.launch
    if isinstance(step.kernel, NumbaKernel):
        from . import numba_rt

        return numba_rt.simulate
    return emulator.bind(step)


def _value(arg: str | Scalar | Pointers, everything: dict[str, Any]):
    if isinstance(arg, Pointers):
        rows = zip(*(everything[name] for name in arg.lists), strict=True)
        return torch.tensor([[t.data_ptr() for t in row] for row in rows])
    if isinstance(arg, Scalar):
        return arg if not isinstance(arg.value, str) else replace(arg, value=everything[arg.value])
    element = re.fullmatch(r"(\w+)\[(\d+)\]", arg)
    value = everything[element[1]][int(element[2])] if element else everything[arg]
    return value.detach()
