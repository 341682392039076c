"""Peers: functions of other libraries that compute an operator, timed with the rungs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    """One function of another library, adapted to an operator's arguments.

    Attributes:
        name: the library, "liger"; in records, "peer:liger".
        operator: "softmax" or "softmax.backward".
        make: `make(**args) -> call`: takes the operator's arguments by name and returns a
            function without arguments that computes the operator's results from them each time it
            is called: a tensor, or a tuple in the schema's order. Preparation belongs in `make` and
            is not timed. A backward that a library offers only through autograd runs its forward in
            `make` and returns
            `lambda: torch.autograd.grad(out, x, gy, retain_graph=True)[0]`.
            A CUDA graph must be able to capture the call: it launches on the current stream and
            never synchronizes, unless `syncs_host` is set. `make` imports the library itself, and
            raises NotImplementedError for a case that the library does not compute.
        requires: the import name of the library, "liger_kernel"; if it is not installed, the peer
            is skipped and the table says so.
        random: its results are random, so only their shapes and dtypes are compared with ours.
        syncs_host: a call waits for the GPU, to read a number back. It cannot be captured; its time
            is from its first launch to the end of its last, including host time in between.
    """

    name: str
    operator: str
    make: Callable[..., Callable[[], Any]]
    requires: str
    random: bool = False
    syncs_host: bool = False
