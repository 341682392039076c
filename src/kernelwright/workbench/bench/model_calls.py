"""The operator calls of a model: the distinct calls, how often each occurs, how long it takes.

The model runs twice, so that nothing is compiled in the second run, which is recorded: forward, and
backward if it is in training mode. A copy of the arguments of each distinct call is kept in host
memory, so that they can be restored on the GPU after the rest of the model's step has been freed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import Ladder, TensorSpec
from kernelwright.contract.eligibility import kind
from kernelwright.dispatch import device_of, specs_of
from kernelwright.machine import random_state
from kernelwright.ops.introspect import reached
from kernelwright.workbench.verify.candidate import copy_of, map_tensors, tensors

HOST = torch.device("cpu")


@dataclass
class Call:
    """Calls of an operator with the same shapes, dtypes and arguments.

    Attributes:
        name: the operator and its arguments, without their data.
        args: the arguments of the first call; tensors in host memory.
        device: the device on which the calls ran.
        us: the times of the calls, in microseconds on that device.
    """

    ladder: Ladder
    name: str
    args: dict[str, Any]
    device: torch.device
    us: list[float] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.us)


def recorded(model: nn.Module, example_inputs: Any) -> list[Call]:
    """The distinct calls of a step of the model, sorted by decreasing time. Calls for which
    `kw.use` selects a rung, and calls on tensor subclasses, are omitted.

    Args:
        example_inputs: a mapping is passed by name, a tuple or list in order, else one argument.
    """
    recorder = _Recorder()
    with _restoring_state(model):
        step(model, example_inputs)
        with recorder:
            step(model, example_inputs)
    return recorder.calls()


def step(model: nn.Module, example_inputs: Any) -> None:
    """Run a forward, and in training mode a backward that sets no `grad`."""
    with torch.set_grad_enabled(model.training), torch.compiler.set_stance("force_eager"):
        if isinstance(example_inputs, Mapping):
            out = model(**example_inputs)
        elif isinstance(example_inputs, Sequence):
            out = model(*example_inputs)
        else:
            out = model(example_inputs)
        weights = [p for p in model.parameters() if p.requires_grad]
        total = _summed(out) if model.training and weights else None
        if total is not None:
            torch.autograd.grad(total, weights, allow_unused=True)


def _summed(out: Any) -> torch.Tensor | None:
    """The loss, or else the sum of all results that require a gradient; None if none does."""
    loss = getattr(out, "loss", None)
    leaves = [loss] if isinstance(loss, torch.Tensor) else tree_leaves(out)
    outputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    return torch.stack([t.float().sum() for t in outputs]).sum() if outputs else None


@contextmanager
def _restoring_state(model: nn.Module) -> Generator[None]:
    """Restore random states and buffers, such as running means, after the block."""
    buffers = [(b, b.clone()) for b in model.buffers()]
    with random_state.preserved():
        yield
    with torch.no_grad():
        for b, before in buffers:
            b.copy_(before)


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self._found: dict[str, Call] = {}
        self._timers: list[tuple[Call, Callable[[], float]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # pyright: ignore
        call = None
        if func.namespace == "kernelwright":
            call = reached(func, args, kwargs or {})
        if call is None or call.rung is not None or not _plain(call.named):
            return func(*args, **(kwargs or {}))
        mine = self._noted(call.ladder, call.named)
        stop = _timer(mine.device)
        out = func(*args, **(kwargs or {}))
        self._timers.append((mine, stop()))
        return out

    def _noted(self, ladder: Ladder, named: dict[str, Any]) -> Call:
        name = name_of(ladder, named)
        if name not in self._found:
            with torch.no_grad():
                kept = map_tensors(named, partial(copy_of, device=HOST))
            self._found[name] = Call(ladder, name, kept, device_of(named))
        return self._found[name]

    def calls(self) -> list[Call]:
        for call, us in self._timers:
            call.us.append(us())
        return sorted(self._found.values(), key=lambda c: -c.total)


def _plain(named: dict[str, Any]) -> bool:
    return not any(is_traceable_wrapper_subclass(t) for t in tensors(named))


def _timer(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Start a timer. Called after the launch, it returns a function that reads the time."""
    if device.type != "cuda":
        start = time.perf_counter()

        def spent() -> Callable[[], float]:
            us = 1e6 * (time.perf_counter() - start)
            return lambda: us

        return spent
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(device)
    first.record(stream)

    def launched() -> Callable[[], float]:
        last.record(stream)
        return lambda: (last.synchronize(), 1e3 * first.elapsed_time(last))[1]

    return launched


def name_of(ladder: Ladder, named: dict[str, Any]) -> str:
    """The name of a call: the operator and all arguments that a kernel may depend on."""
    floats = {a.name for a in ladder.operator.args if a.kind.startswith("float")}
    parts = [f"{n}={_shown(v)}" for n, v in specs_of(named).items() if n not in floats]
    return f"{ladder.name}({', '.join(parts)})"


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], TensorSpec):
        return f"[{', '.join(map(_shown, value))}]"
    if not isinstance(value, TensorSpec):
        return repr(value)
    text = f"{kind(value.dtype)}{list(value.shape)}"
    if not value.is_contiguous():
        text += f" by {list(value.strides)}"
    return text if value.align >= 16 else f"{text} at {value.align}"
