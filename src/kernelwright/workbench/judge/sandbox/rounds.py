"""In a kernel's process: rounds of calls, timed by the judging process.

A round calls the kernel once with each set of arguments, or several times over. The results of each
call are kept in memory of their own, so that the judge can check every timed call afterwards: a
CUDA graph replays what a kernel did while it was captured, and a kernel that launches nothing from
its twentieth call on is then found to be wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.workbench.verify import captures
from kernelwright.workbench.verify.candidate import filler, unexpanded

from .loading import as_tuple

Arguments = tuple[list[Any], dict[str, Any]]


def synchronize_of(cuda: bool) -> Callable[[], None]:
    """What waits for all of the GPU's work. Taken before a kernel's file is imported: it may
    replace `torch.cuda.synchronize`, or what that calls, but not what is held already."""
    return torch._C._cuda_synchronize if cuda else lambda: None


def captured(fn: Callable[[], Any]) -> tuple[Any, Any]:
    """(a CUDA graph of what a function launches, what it returned).

    Raises whatever the function does, or else the end of its capture.
    """
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    raised: list[Exception] = []

    def told() -> Any:
        try:
            return fn()
        except Exception as e:
            raised.append(e)
            raise

    try:
        with torch.cuda.graph(graph, pool=pool):
            results = told()
    except Exception:
        captures.end_recording(pool)
        if raised:  # the capture's end says only that something before it failed
            raise raised[0] from None
        raise
    return graph, results


class Rounds:
    """Rounds of one kernel, recorded in a CUDA graph where that can be.

    Attributes:
        launches: calls in a round.
        uncaptured: why a round is calls and no graph, or "".
        results: of each call of the newest round.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        sets: list[Arguments],
        passes: int,
        lent: set[int],
        cuda: bool,
        synchronize: Callable[[], None],
    ):
        """`passes`: how often a graph goes through the sets. `lent`: where memory of the
        arguments begins, which is not to be spoiled."""
        self.fn, self.sets, self.lent = fn, sets, lent
        self.cuda, self.synchronize = cuda, synchronize
        self.results: list[tuple[Any, ...]] = []
        self.uncaptured = "there is no GPU"
        self._start: Callable[[], Any] = self._plainly
        for listed, named in sets[:2] * 2:  # builds, allocates, tunes
            fn(*listed, **named)
        if cuda:
            self._record(sets * passes)
        self.repeat(1)
        self.launches = len(self.results)

    def _record(self, sets: list[Arguments]) -> None:
        try:
            graph, self.results = captured(lambda: self._each(sets))
        except Exception as e:  # noqa: BLE001 - whatever a kernel raises is why
            self.uncaptured = f"{type(e).__name__}: {e}".splitlines()[0]
        else:
            self._start, self.uncaptured = graph.replay, ""

    def _each(self, sets: list[Arguments]) -> list[tuple[Any, ...]]:
        return [as_tuple(self.fn(*listed, **named)) for listed, named in sets]

    def _plainly(self) -> None:
        self.results = []  # frees what the round before gave
        self.results = self._each(self.sets)

    def repeat(self, times: int) -> None:
        """Rounds, and the wait for their end."""
        for _ in range(times):
            self._start()
        self.synchronize()

    def clock(self, times: int) -> float:
        """Microseconds that this process's own clock gives so many rounds."""
        if not self.cuda:
            start = time.perf_counter()
            self.repeat(times)
            return (time.perf_counter() - start) * 1e6
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.repeat(times)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def host(self, times: int) -> None:
        """Calls without synchronization: host time."""
        (listed, named), fn = self.sets[0], self.fn
        for _ in range(times):
            fn(*listed, **named)

    def spoil(self) -> None:
        """Overwrite what the newest round gave: a graph that does not write it again is found."""
        for results in self.results:
            for t in results:
                if type(t) is torch.Tensor and t.untyped_storage().data_ptr() not in self.lent:
                    unexpanded(t.detach()).fill_(filler(t.dtype))
        self.synchronize()
