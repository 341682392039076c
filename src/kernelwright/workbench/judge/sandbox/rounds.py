"""In the kernel's process: rounds of calls, timed by the judging process.

A round calls the kernel once or several times with each set of arguments. The results of each call
are kept in separate memory, so that the judge can check every timed call afterwards. For example, a
CUDA graph replays what a kernel did while it was captured; a kernel that launches nothing from its
twentieth call on is then found to be wrong.
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
    """The function that waits for all of the GPU's work. It is looked up before the kernel's file
    is imported, which may replace `torch.cuda.synchronize` or what that calls."""
    return torch._C._cuda_synchronize if cuda else lambda: None


def captured(fn: Callable[[], Any]) -> tuple[Any, Any]:
    """(a CUDA graph of what a function launches, what it returned).

    Raises the exceptions of the function, or else of the end of the capture.
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
        if raised:  # the error at the capture's end does not state the cause
            raise raised[0] from None
        raise
    return graph, results


class Rounds:
    """Rounds of one kernel, recorded in a CUDA graph if possible.

    Attributes:
        launches: the number of calls in a round.
        uncaptured: why a round consists of calls instead of a graph, or "".
        results: the results of each call of the newest round.
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
        """`passes`: how often a graph goes through the sets. `lent`: the start addresses of the
        arguments' memory, which must not be overwritten."""
        self.fn, self.sets, self.lent = fn, sets, lent
        self.cuda, self.synchronize = cuda, synchronize
        self.results: list[tuple[Any, ...]] = []
        self.uncaptured = "there is no GPU"
        self._start: Callable[[], Any] = self._plainly
        for listed, named in sets[:2] * 2:  # compile, allocate and tune first
            fn(*listed, **named)
        if cuda:
            self._record(sets * passes)
        self.repeat(1)
        self.launches = len(self.results)

    def _record(self, sets: list[Arguments]) -> None:
        try:
            graph, self.results = captured(lambda: self._each(sets))
        except Exception as e:  # noqa: BLE001 - whatever a kernel raises is the reason
            self.uncaptured = f"{type(e).__name__}: {e}".splitlines()[0]
        else:
            self._start, self.uncaptured = graph.replay, ""

    def _each(self, sets: list[Arguments]) -> list[tuple[Any, ...]]:
        return [as_tuple(self.fn(*listed, **named)) for listed, named in sets]

    def _plainly(self) -> None:
        self.results = []  # frees the results of the previous round
        self.results = self._each(self.sets)

    def repeat(self, times: int) -> None:
        """Run rounds, and wait for their end."""
        for _ in range(times):
            self._start()
        self.synchronize()

    def clock(self, times: int) -> float:
        """The duration of this number of rounds by this process's clock, in microseconds."""
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
        """Run calls without synchronization, for the host time."""
        (listed, named), fn = self.sets[0], self.fn
        for _ in range(times):
            fn(*listed, **named)

    def spoil(self) -> None:
        """Overwrite the results of the newest round, to detect a graph that does not write them."""
        for results in self.results:
            for t in results:
                if type(t) is torch.Tensor and t.untyped_storage().data_ptr() not in self.lent:
                    unexpanded(t.detach()).fill_(filler(t.dtype))
        self.synchronize()
