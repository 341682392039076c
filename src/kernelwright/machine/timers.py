"""Timers that take one sample: CUDA graphs between events on a GPU, the wall clock on a CPU."""

from __future__ import annotations

import ctypes
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from . import nvml
from .facts import gpu_facts, index_of, uuid

SPAN_US = 300.0  # shortest sample: starting a graph costs 1 to 3 us, which must be negligible

#: Starts one sample and returns a function that, after the round, gives microseconds per launch.
Start = Callable[[], Callable[[], float]]


@dataclass
class Track:
    """A candidate ready to be sampled; `launches` in each sample."""

    start: Start
    launches: int = 1


class GpuTimer:
    """CUDA graphs between events, on the current stream of a `session`."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.current_stream(device)
        assert self.stream != torch.cuda.default_stream(device), "time inside a session"
        index = index_of(device)
        self.peak = gpu_facts(index).peak_bandwidth
        self.uuid = uuid(index)
        self.readings: list[nvml.Reading] = []
        self.rounds = 0
        self.renew()

    def before(self) -> None:
        """Keep the GPU busy for about 100 us, so that the host stays ahead of it for the whole
        round."""
        torch.cuda._sleep(200_000)

    def after(self) -> None:
        """Occasionally read the driver's counters while the round runs, and wait for its end."""
        if self.rounds % 16 == 0:
            reading = nvml.read(self.uuid)
            self.readings += [reading] if reading else []
        self.rounds += 1
        self.stream.synchronize()

    def track(self, calls: Sequence[Callable[[], Any]]) -> Track:
        """Capture a candidate: short launches of all sets in one graph (repeated if necessary),
        long launches in one graph per set."""
        for call in calls[:2]:  # compile, allocate and tune first
            call()
        self.stream.synchronize()
        rotating = len(calls) > 1
        count, graph = len(calls), self._capture(calls, rotating)
        self._sample((graph,), count)()()
        span = count * self._sample((graph,), count)()()
        if span / count >= SPAN_US and rotating:
            graphs = [self._capture([call], rotating) for call in calls]
            return Track(self._sample(graphs, 1), 1)
        if span < SPAN_US:
            count *= -(-int(SPAN_US) // max(1, int(span)))
            graph = self._capture([*calls] * (count // len(calls)), rotating)
        return Track(self._sample((graph,), count), count)

    def renew(self) -> None:
        """Start a new memory pool for graphs. A pool is freed with its last graph, so one is
        kept."""
        self.pool = torch.cuda.graph_pool_handle()
        self.anchor = self._capture([lambda: torch.cuda._sleep(1)], rotating=False)

    def _capture(self, calls: Sequence[Callable[[], Any]], rotating: bool) -> torch.cuda.CUDAGraph:
        """One launch of each call. `rotating`: each writes its own memory, because all results are
        kept until the end; otherwise each reuses the memory that the previous one freed."""
        graph = torch.cuda.CUDAGraph()
        results = []
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            for call in calls:
                result = call()
                if rotating:
                    results.append(result)
                del result
        except Exception:
            with suppress(RuntimeError):  # its message is only that the capture failed
                graph.capture_end()
            self.renew()  # for the allocator the old pool is still being captured
            raise
        graph.capture_end()
        graph.replay()
        self.stream.synchronize()
        return graph

    def _sample(self, graphs: Sequence[torch.cuda.CUDAGraph], launches: int) -> Start:
        turn = 0

        def start() -> Callable[[], float]:
            nonlocal turn
            graph = graphs[turn % len(graphs)]
            turn += 1
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(self.stream)
            graph.replay()
            end.record(self.stream)

            def read() -> float:
                end.synchronize()
                return begin.elapsed_time(end) * 1e3 / launches

            return read

        return start


def launched(calls: Sequence[Callable[[], Any]], device: torch.device) -> Track:
    """Times calls that cannot be captured, one by one on the current stream: GPU time from a call's
    first kernel to its last, including host time in between."""
    stream, turn = torch.cuda.current_stream(device), 0
    for call in calls[:2]:
        call()

    def start() -> Callable[[], float]:
        nonlocal turn
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        calls[turn % len(calls)]()
        end.record(stream)
        turn += 1

        def read() -> float:
            end.synchronize()
            return begin.elapsed_time(end) * 1e3

        return read

    return Track(start)


class CpuTimer:
    """The wall clock around enough calls for a precise reading."""

    SPAN_S = 2e-3

    def __init__(self, device: torch.device):
        self.peak = None
        self.readings: list[nvml.Reading] = []

    def before(self) -> None:
        """Nothing is queued on a CPU."""

    def after(self) -> None:
        """Nothing is waited for on a CPU."""

    def renew(self) -> None:
        """Nothing is captured on a CPU."""

    def track(self, calls: Sequence[Callable[[], Any]]) -> Track:
        """Call until calls touch no new pages, then determine how many calls make a sample."""
        seconds = 0.0
        for i in range(8):
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            seconds = _wall(calls[i % len(calls)])
            if resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 256 and i > 0:
                break
        launches = max(1, min(4096, int(self.SPAN_S / max(seconds, 1e-7))))
        turn = 0

        def start() -> Callable[[], float]:
            nonlocal turn
            these = [calls[(turn + i) % len(calls)] for i in range(launches)]
            turn += launches
            begin = time.perf_counter()
            for call in these:
                call()
            microseconds = (time.perf_counter() - begin) / launches * 1e6
            return lambda: microseconds

        return Track(start, launches)


def _wall(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@cache
def keep_freed_memory() -> bool:
    """Make the C library keep freed memory, as the CUDA caching allocator does. Otherwise every
    large result consists of new pages, whose page faults dominate the time. Linux only."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    trim_threshold, mmap_max = -1, -4
    return mallopt(mmap_max, 0) == 1 and mallopt(trim_threshold, 2**31 - 1) == 1
