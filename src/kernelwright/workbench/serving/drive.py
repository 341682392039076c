"""Runs requests through an engine as they arrive, in this process, without HTTP."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.infer.engine import Engine, Request


@dataclass
class Served:
    """A request and its times, in seconds since the run began.

    Attributes:
        first, last: when its first and last token came.
        tokens: the number of tokens.
    """

    prompt: int
    arrived: float
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0

    @property
    def to_first(self) -> float:
        """Seconds to the first token."""
        return self.first - self.arrived

    @property
    def per_token(self) -> float | None:
        """Mean seconds between tokens; None for a single one."""
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        seconds: from the first arrival to the last token.
        stepping: seconds in the engine's steps; the rest is waiting for arrivals.
        steps, preemptions: their number.
    """

    requests: Sequence[Served]
    seconds: float
    stepping: float
    steps: int
    preemptions: int


def drive(
    engine: Engine,
    requests: Sequence[Request],
    arrivals: Sequence[float],
    on_step: Callable[[int], None],
) -> Run:
    """Run the requests to their ends.

    Args:
        arrivals: seconds, ascending.
        on_step: called with the number of finished requests after each step.
    """
    coming = deque(zip(arrivals, requests, strict=True))
    served: dict[int, Served] = {}
    finished, stepping = 0, 0.0
    before = engine.statistics()
    begun = now = time.perf_counter()
    while coming or engine.busy:
        while coming and coming[0][0] <= now - begun:
            at, request = coming.popleft()
            served[engine.add(request)] = Served(len(request.prompt), at)
        if not engine.busy:
            time.sleep(max(0.0, begun + coming[0][0] - time.perf_counter()))
            now = time.perf_counter()
            continue
        outputs = engine.step()
        stepping -= now
        now = time.perf_counter()
        stepping += now
        for output in outputs:
            request = served[output.id]
            request.tokens += output.token is not None
            request.first = request.first or now - begun
            request.last = now - begun
            finished += bool(output.finish)
        on_step(finished)
    after = engine.statistics()
    return Run(
        list(served.values()),
        now - begun - arrivals[0],
        stepping,
        after.steps - before.steps,
        after.preemptions - before.preemptions,
    )
