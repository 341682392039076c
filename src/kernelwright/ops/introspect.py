"""Information about calls: `explain` before a call, `Serving` during it; `warmup` builds what a
call needs in advance, and `use` selects the rung of a call."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from kernelwright import dispatch
from kernelwright.contract import Ladder
from kernelwright.ops import PUBLIC


class _Reached(Exception):
    """Carries the operator call that a public function was about to make."""

    def __init__(self, ladder: Ladder, named: dict[str, Any], rung: str | None):
        super().__init__(ladder.name)
        self.ladder, self.named, self.rung = ladder, named, rung


class _StopAtOperator(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "kernelwright":
            return func(*args, **(kwargs or {}))
        call = reached(func, args, kwargs or {})
        if call is None:
            return func(*args, **(kwargs or {}))
        raise call


class Serving(TorchDispatchMode):
    """Records which rungs the calls inside the block are dispatched to, gradients included.

    Attributes:
        calls: number of calls, by operator and rung.
    """

    def __init__(self):
        super().__init__()
        self.calls: dict[str, Counter[str]] = defaultdict(Counter)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "kernelwright" and (call := reached(func, args, kwargs or {})):
            device = dispatch.device_of(call.named)
            served = dispatch.explain(call.ladder, call.named, device, call.rung).serves
            self.calls[call.ladder.name][served.rung.name] += 1
        return func(*args, **(kwargs or {}))


def reached(func, args: tuple, kwargs: dict[str, Any]) -> _Reached | None:
    """The operator that a function of torch.ops.kernelwright calls, and its arguments by name; None
    if the operator has no ladder."""
    name = func.__name__.split(".")[0]
    ladder = next((x for x in dispatch.ladders() if x.operator.torch_name == name), None)
    if ladder is None:
        return None
    named = {a.name: a.default for a in ladder.operator.args}
    named.update(zip(named, args, strict=False))
    named.update(kwargs)
    return _Reached(ladder, named, named.pop("rung", None))


def _operator_call(name: str, args: tuple, kwargs: dict) -> _Reached | None:
    """The operator call behind a public call, or None if the public function makes none."""
    _imported(name)
    if "." in name:
        ladder = dispatch.ladder(name)
        named = {a.name: a.default for a in ladder.operator.args}
        named.update(zip(named, args, strict=False))
        return _Reached(ladder, {**named, **kwargs}, dispatch.override(name))
    try:
        with _StopAtOperator():
            _public(name)(*args, **kwargs)
    except _Reached as reached:
        return reached
    return None


def _public(name: str):
    return getattr(importlib.import_module(PUBLIC[name]), name)


def _imported(name: str) -> None:
    """Import the ladder of an operator ("softmax.backward"), or all ladders if no public function
    has this name."""
    if not dispatch.known(name):
        importlib.import_module(PUBLIC.get(name.partition(".")[0], "kernelwright.ops.every"))
    dispatch.ladder(name)


def use(rungs: dict[str, str] | None = None, /, **named: str) -> AbstractContextManager[None]:
    """Dispatch the named operators to the named rungs inside the block, in every thread of the
    process. Where blocks overlap, the one that was entered last applies.

    Args:
        named: operator name to rung name. `softmax="triton_online"` also applies to the backward if
            its ladder has a rung of that name. To name a rung of the backward alone, pass a dict:
            `use({"softmax.backward": "cuda_block"})`.

    Raises:
        UnknownOperator, UnknownRung: an unknown name; the message lists the known ones.
    """
    chosen = {**(rungs or {}), **named}
    for name in chosen:
        _imported(name)
    return dispatch.use(chosen)


def explain(name: str, *args: Any, **kwargs: Any) -> dispatch.Explanation:
    """Which rung a call is dispatched to and why, and why not to each of the others. Launches
    nothing.

    Args:
        name: a public function ("softmax"), followed by its arguments, or a backward
            ("softmax.backward"), followed by the arguments of its schema.

    Returns:
        An Explanation: print it, or read `serves`, `others`.

    Raises:
        UnknownOperator: there is no such operator.
        ValueError: the call is answered without the operator (no kernel is needed for the input).
    """
    call = _operator_call(name, args, kwargs)
    if call is None:
        raise ValueError(f"{name}: PyTorch handles this call itself; no rung is dispatched")
    device = dispatch.device_of(call.named)
    return dispatch.explain(call.ladder, call.named, device, call.rung)


def warmup(name: str, *args: Any, **kwargs: Any) -> None:
    """Build everything that a call needs, so that it can be captured in a CUDA graph.

    Runs the call once, and its backward if an input requires grad. An operator that changes its
    arguments runs on copies of them.

    Args:
        name: a public function ("softmax"), followed by the arguments of the future call: same
            shapes, strides, dtypes and flags.
    """
    call = _operator_call(name, args, kwargs)
    if call is not None and call.ladder.operator.mutated:
        args, kwargs = tree_map(_copy, (args, kwargs))
    out = _public(name)(*args, **kwargs)
    inputs = [t for t in tree_leaves((args, kwargs)) if _is_tensor(t) and t.requires_grad]
    outputs = [t for t in tree_leaves(out) if _is_tensor(t) and t.requires_grad]
    if inputs and outputs:
        grads = [torch.ones_like(t) for t in outputs]
        torch.autograd.grad(outputs, inputs, grads, allow_unused=True)


def _is_tensor(t: Any) -> bool:
    return isinstance(t, torch.Tensor)


def _copy(t: Any) -> Any:
    return t.detach().clone().requires_grad_(t.requires_grad) if _is_tensor(t) else t
