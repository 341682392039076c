"""Memory of a training step: predicted on tensors without storage, measured on real ones."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelwright import dispatch
from kernelwright.ops import introspect


@dataclass(frozen=True)
class Memory:
    """Bytes of tensors.

    Attributes:
        held: parameters and the optimizer's states, which stay between steps.
        peak: the maximum during a step, including `held`, gradients and activations.
    """

    held: int
    peak: int


class Storages(TorchDispatchMode):
    """Counts the bytes of live storages that operators return. If a rung consists of PyTorch's
    operators, their storages are counted, such as a chunk of logits in the workspace of such a
    rung. Workspaces of kernels are not counted.

    Attributes:
        live, peak: the current bytes, and the maximum so far.
    """

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def add(self, tensors: Any) -> None:
        """Count tensors that existed before."""
        for t in tree_leaves(tensors):
            if isinstance(t, torch.Tensor):
                self._count(t.untyped_storage())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        run = of_operators(func, args, kwargs or {}) if func.namespace == "kernelwright" else None
        if run is not None:
            with self:
                return run()
        results = func(*args, **(kwargs or {}))
        self.add(results)
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size).atexit = False

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def of_operators(func: Any, args: Any, kwargs: Any) -> Callable[[], Any] | None:
    """A function that runs a call whose rung consists of PyTorch's operators, or None."""
    call = introspect.reached(func, args, kwargs)
    if call is None:
        return None
    specs, _ = call.ladder.operator.normalise(dispatch.specs_of(call.named))
    device = dispatch.device_of(call.named)
    if dispatch.select(call.ladder, specs, device, call.rung).rung.backend != "torch":
        return None
    return partial(dispatch.launcher(call.ladder, call.named, call.rung), *call.named.values())


def predict(build: Callable[[], tuple[Any, Callable[[], Any]]]) -> Memory:
    """The memory that a step would need, without executing it.

    Args:
        build: makes a model with its optimizer, and returns (the tensors held between steps, a
            function that takes a step). Called in a mode in which tensors have no storage.
    """
    storages = Storages()
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), storages:
        # selection reads the alignment of tensors, which these do not have
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        held, step = build()
        step()  # the optimizer creates its states
        storages.peak = storages.live
        before = storages.live
        step()
    del held
    return Memory(before, storages.peak)


def measure(
    step: Callable[[], Any], held: Sequence[torch.Tensor], device: torch.device
) -> tuple[Any, Memory]:
    """(what a step returns, the memory that it used).

    Args:
        held: tensors that stay between steps.
    """
    size = sum(t.numel() * t.element_size() for t in held)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        result = step()
        return result, Memory(size, torch.cuda.max_memory_allocated(device))
    storages = Storages()
    storages.add(held)
    with storages:
        result = step()
    return result, Memory(size, storages.peak)
