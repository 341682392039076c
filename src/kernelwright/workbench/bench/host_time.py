"""Host time of a call: a public function and PyTorch's own, in one run.

On small tensors the GPU waits for the host, so host time determines the speed of small models.
Records: "host:kw" and "host:torch" are without gradients; "host:kw+backward" and
"host:torch+backward" are a forward and a backward through autograd.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import kernelwright
from kernelwright.contract import Case, Ladder
from kernelwright.dispatch import entry_of, ladders
from kernelwright.machine import clock, slug
from kernelwright.workbench.records.records import Record


def host_records(ladder: Ladder, case: Case, device: torch.device, run: str) -> list[Record]:
    """Host microseconds of a forward operator's public function and of PyTorch's function.

    Empty if the public function's arguments differ from the operator's and the ladder has no
    `public`.
    """
    operator = ladder.operator
    inputs = operator.inputs(case, device.type)
    args = operator.with_defaults(inputs)
    functions = _functions(ladder, args)
    backward = next((x for x in ladders() if x.name == f"{operator.name}.backward"), None)
    calls: dict[str, Callable[[], Any]] = {}
    for name, function in functions.items():
        calls[f"host:{name}"] = function(args)
        if backward and not operator.mutated:
            calls[f"host:{name}+backward"] = _with_gradient(function, args, ladder, backward)
    if not calls:
        return []
    for call in calls.values():
        for _ in range(3):
            call()
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = clock.time_host(calls, settle, random.Random(0), blocks=24)
    return [
        Record(operator.name, name, case.id, slug(device), run, "pass", host=tuple(samples))
        for name, samples in times.items()
    ]


def _functions(ladder: Ladder, args: dict[str, Any]) -> dict[str, Callable]:
    """Functions that make calls from an operator's arguments: "kw" calls its public function,
    "torch" PyTorch's, or the rung `native` if torch has no function of that name."""
    ours = getattr(kernelwright, ladder.name, None)
    native = entry_of(ladder, ladder.rung("native"))
    if ours is None:
        return {}
    if ladder.public is not None:
        theirs = getattr(F, ladder.name, getattr(torch, ladder.name, None))
        return {
            "kw": partial(_arranged, ours, ladder.public),
            "torch": partial(_arranged, theirs, ladder.public) if theirs else _positional(native),
        }
    known = inspect.signature(ours).parameters
    _, *rest = args
    needed = [n for n, p in known.items() if p.default is p.empty]
    if any(n not in known for n in rest) or any(n not in rest for n in needed[1:]):
        return {}
    return {"kw": partial(_named, ours), "torch": _positional(native)}


def _arranged(function: Callable, public: Callable, args: dict[str, Any]) -> Callable[[], Any]:
    positional, named = public(**args)
    return partial(function, *positional, **named)


def _named(function: Callable, args: dict[str, Any]) -> Callable[[], Any]:
    """A call with the first tensor passed by position, the rest by name."""
    (_, first), *rest = args.items()
    return partial(function, first, **dict(rest))


def _positional(function: Callable) -> Callable:
    return lambda args: partial(function, *args.values())


def _with_gradient(
    function: Callable, args: dict[str, Any], ladder: Ladder, backward: Ladder
) -> Callable[[], Any]:
    """A forward and backward on new leaf tensors: from the results whose gradients the backward
    takes, which come first, to the arguments whose gradients it returns."""
    taken = {a.name for a in backward.operator.args}
    count = sum(f"g{r}" in taken for r in ladder.operator.results)
    wanted = {n[1:] for n in backward.operator.results}
    leaves = {
        n: v.clone().requires_grad_() if n in wanted and isinstance(v, torch.Tensor) else v
        for n, v in args.items()
    }
    inputs = [v for n, v in leaves.items() if n in wanted and isinstance(v, torch.Tensor)]
    forward = function(leaves)

    def results() -> list[torch.Tensor]:
        out = forward()
        return list(out[:count]) if isinstance(out, tuple) else [out]

    gradients = [torch.ones_like(t) for t in results()]
    return lambda: torch.autograd.grad(results(), inputs, gradients)
