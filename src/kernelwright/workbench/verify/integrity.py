"""Detects replaced functions: of torch, of Python's clocks, of the garbage collector.

A kernel that replaces `torch.cuda.synchronize` or `time.perf_counter` could falsify measurements in
its own process. Nothing is measured there, but the attempt is reported.
"""

from __future__ import annotations

import builtins
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

#: The monitored namespaces, by the name used in messages. New attributes are ignored.
OWNERS: dict[str, Any] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.testing": torch.testing,
    "torch.autograd": torch.autograd,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.cuda.CUDAGraph": torch.cuda.CUDAGraph,
    "time": time,
    "gc": gc,
    "threading": threading,
    "builtins": builtins,
}


class Snapshot:
    """The current functions."""

    def __init__(self):
        self._before = {(name, key): value for name, key, value in _functions()}

    def replaced(self) -> str | None:
        """The first function that has been replaced, in one line, or None."""
        changed = self._changed()
        if not changed:
            return None
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{'.'.join(changed[0])} has been replaced{more}"

    def restore(self) -> None:
        """Restore the functions that have been replaced."""
        for key in self._changed():
            setattr(OWNERS[key[0]], key[1], self._before[key])

    def _changed(self) -> list[tuple[str, str]]:
        owners = {name: vars(owner) for name, owner in OWNERS.items()}
        return [
            (name, key)
            for (name, key), before in self._before.items()
            if (now := owners[name].get(key)) is not before and not _wrapped_by_torch(now, before)
        ]


def _wrapped_by_torch(now: Any, before: Any) -> bool:
    """Whether torch itself wrapped the function: torch.compile does so when it is imported."""
    code = getattr(now, "__code__", None)
    own = code is not None and Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)
    return own and getattr(now, "__wrapped__", None) is before


def _functions() -> Iterator[tuple[str, str, Any]]:
    for name, owner in OWNERS.items():
        for key, value in vars(owner).items():
            if callable(value) or isinstance(value, (staticmethod, classmethod, property)):
                yield name, key, value
