"""Makes the function that runs calls with given specs: select, plan and compile once."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from kernelwright import toolchain
from kernelwright.contract import H200, Config, Ladder, Operator, Plan, Rung, TensorSpec
from kernelwright.machine import gpu_of
from kernelwright.toolchain import cpp_extension, inductor

from .selection import Choice, config_of, select, specs_of

RungFunction = Callable[..., Any]  # takes the operator's arguments in the schema's order
Strides = tuple[tuple[int, ...], ...]  # of each result


def launcher(
    ladder: Ladder, args: dict[str, Any], rung: str | None = None, config: Config | None = None
) -> RungFunction:
    """The bound function for calls like this one, for the selected rung or the given one.

    Args:
        args: the operator's arguments by name. Only their specs matter, not their data.
        rung, config: used instead of those that selection would choose.

    Raises:
        Unsupported: the named rung does not support this call.
        CompiledDuringCapture: a kernel would have to be built inside a CUDA graph.
    """
    device = device_of(args)
    specs, copies = ladder.operator.normalise(specs_of(args))
    choice = select(ladder, specs, device, rung)
    if config is not None:
        choice = Choice(choice.rung, config, choice.why)
    return rung_function(ladder, choice, specs, copies, device)


def rung_function(
    ladder: Ladder, choice: Choice, specs, copies, device: torch.device
) -> RungFunction:
    rung = choice.rung
    strides = required_strides(ladder.operator, specs, copies)
    if rung.backend == "inductor":
        return restrided(inductor.compiled(entry_of(ladder, rung), device), strides)
    if rung.backend == "torch":
        return in_pytorch(ladder, rung, specs, device)(strides)
    return toolchain.executor(
        plan_of(ladder, rung, specs, device=device, config=choice.config),
        ladder.operator,
        specs,
        copies,
        device,
    )


def in_pytorch(
    ladder: Ladder, rung: Rung, specs, device: torch.device
) -> Callable[[Strides | None], RungFunction]:
    """Returns a function of the strides that results must have, which returns a PyTorch rung's
    function."""
    function = entry_of(ladder, rung)
    gpu = gpu_of(device)
    name = rung.aten(gpu, **specs) if rung.aten and gpu else None

    def bound(strides: Strides | None) -> RungFunction:
        plain = restrided(function, strides)
        if name is None:
            return plain
        run = partial(plain)
        run.again = lambda: aten_call(name, plain, strides)  # pyright: ignore
        return run

    return bound


def aten_call(name: str, plain: RungFunction, strides: Strides | None) -> RungFunction:
    """The same call in C++ (toolchain/cpp_extension/aten_calls.h), which calls `plain` where it
    does not apply; `plain` itself where PyTorch's build has no such function."""
    module = cpp_extension.loaded
    assert module is not None
    return module.aten_call(name, plain, strides or ()) or plain


def required_strides(operator: Operator, specs, copies) -> Strides | None:
    """The strides that the operator specifies for its results, if PyTorch's may differ."""
    given = [t for t in specs.values() if isinstance(t, TensorSpec)]
    if not operator.results or (not copies and all(t.is_contiguous() for t in given)):
        return None
    return tuple(t.strides for t in operator.outputs(**specs))


def restrided(fn: Callable, strides: Strides | None) -> RungFunction:
    """A function whose results have these strides, if any are given. PyTorch may derive strides
    from a permuted input, but torch.compile relies on those of the fake."""
    if strides is None:
        return fn

    def run(*args):
        out = fn(*args)
        if isinstance(out, torch.Tensor):
            return _restrided(out, strides[0])
        return tuple(_restrided(t, s) for t, s in zip(out, strides, strict=True))

    return run


def _restrided(t: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    if t.stride() == strides:
        return t
    return torch.empty_strided(t.shape, strides, dtype=t.dtype, device=t.device).copy_(t)


def plan_of(
    ladder: Ladder,
    rung: Rung,
    specs: dict[str, Any],
    *,
    device: torch.device | None = None,
    config: Config | None = None,
) -> Plan:
    """The plan of a GPU rung for normalized specs; for an H200 if there is no GPU."""
    gpu = (gpu_of(device) if device else None) or H200
    if config is None:
        config = config_of(ladder, rung, gpu, specs)
    return entry_of(ladder, rung)(gpu, config, **specs)


@cache
def entry_of(ladder: Ladder, rung: Rung) -> Callable:
    """The rung's function; imports its module."""
    if rung.is_gpu:
        toolchain.prepare(rung.backend)
    module, name = rung.entry.split(":")
    return getattr(importlib.import_module(f"{ladder.package}.{module}"), name)


def device_of(args: dict[str, Any]) -> torch.device:
    """The one device of the tensors. Raises ValueError if they are on several devices."""
    first: tuple[str, torch.device] | None = None
    for name, v in args.items():
        for t in v if isinstance(v, (list, tuple)) else (v,):
            if not isinstance(t, torch.Tensor):
                continue
            if first is None:
                first = name, t.device
            elif t.device != first[1]:
                raise ValueError(f"{name} is on {t.device}, but {first[0]} is on {first[1]}")
    assert first is not None, "an operator without tensors"
    return first[1]
