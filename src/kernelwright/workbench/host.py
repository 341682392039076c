"""What a call costs the host: a public function beside PyTorch's own, in one run.

On small tensors the GPU waits for the host, so this is the time that users of small models see.
Records: "host:kw" and "host:torch" without gradient, "host:kw+backward" and
"host:torch+backward" forward and backward through autograd.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import kernelwright
from kernelwright.contract import Case, Ladder
from kernelwright.dispatch import entry_of, ladders
from kernelwright.machine import clock, slug

from .records import Record
from .trial import map_tensors


def host_records(ladder: Ladder, case: Case, device: torch.device, run: str) -> list[Record]:
    """Host microseconds of a forward operator's public function and of PyTorch's own.

    Empty where the public function takes other arguments than the operator (rms_norm's shape).
    """
    operator = ladder.operator
    made = operator.inputs(case, device.type)
    args = {a.name: made.get(a.name, a.default) for a in operator.args}
    public = _public(ladder, args)
    if public is None:
        return []
    functions = {"kw": public, "torch": _positional(entry_of(ladder, ladder.rung("native")))}
    backward = any(x.name == f"{operator.name}.backward" for x in ladders())
    calls: dict[str, Callable[[], Any]] = {}
    for name, function in functions.items():
        calls[f"host:{name}"] = function(args)
        if backward and not operator.mutated:
            calls[f"host:{name}+backward"] = _with_gradient(function, args)
    for call in calls.values():
        for _ in range(3):
            call()
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    found = clock.time_host(calls, settle, random.Random(0), blocks=24)
    return [
        Record(operator.name, name, case.id, slug(device), run, "pass", host=tuple(samples))
        for name, samples in found.items()
    ]


def _public(ladder: Ladder, args: dict[str, Any]) -> Callable | None:
    """Makes calls of the public function from an operator's arguments: the first tensor by
    position, the rest by name. None where the names are not the public ones."""
    function = getattr(kernelwright, ladder.name, None)
    if function is None:
        return None
    known = inspect.signature(function).parameters
    _, *rest = args
    needed = [n for n, p in known.items() if p.default is p.empty]
    if any(n not in known for n in rest) or any(n not in rest for n in needed[1:]):
        return None

    def bound(a):
        first, *values = a.values()
        return partial(function, first, **dict(zip(rest, values, strict=True)))

    return bound


def _positional(function: Callable) -> Callable:
    return lambda args: partial(function, *args.values())


def _with_gradient(function: Callable, args: dict[str, Any]) -> Callable[[], Any]:
    """Forward and backward, on leaves of their own."""
    leaves = map_tensors(args, lambda t: t.clone().requires_grad_(t.is_floating_point()))
    inputs = [a for a in leaves.values() if isinstance(a, torch.Tensor) and a.requires_grad]
    forward = function(leaves)
    gradient = torch.ones_like(forward())
    return lambda: torch.autograd.grad(forward(), inputs, gradient)
