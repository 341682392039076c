"""Another library's way to compute an operator, timed beside the rungs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    """One function of another library, adapted to an operator's arguments.

    Attributes:
        name: the library, "liger". Records call it "peer:liger".
        operator: "softmax" or "softmax.backward".
        make: `make(**args) -> call`: takes the operator's arguments by name and returns a
            function of no arguments that computes the operator's results from them, each time it
            is called: a tensor, or a tuple in the schema's order. Whatever can be prepared is
            prepared in `make` and not timed. A backward that a library gives only through
            autograd runs its forward in `make` and returns
            `lambda: torch.autograd.grad(out, x, gy, retain_graph=True)[0]`.
            The call must be fit for capture in a CUDA graph: it launches on the current stream
            and never synchronises, unless `waits` is set. `make` imports the library itself.
        requires: the import name of the library, "liger_kernel"; where it is not installed the
            peer is skipped and the table says so.
        random: its results are random, so only their shapes and dtypes are held to ours.
        waits: a call waits for the GPU before its end, to read a number back. It cannot be
            captured, and its time is from its first launch to the end of its last, the host's
            part in between included.
    """

    name: str
    operator: str
    make: Callable[..., Callable[[], Any]]
    requires: str
    random: bool = False
    waits: bool = False
