"""What takes one sample: CUDA graphs between events on a GPU, the wall clock on a CPU."""

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

SPAN_US = 300.0  # shortest sample: starting a graph costs 1 to 3 us and must not show

#: Starts one sample; the function that it returns gives microseconds a launch, after the round.
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
        """Keep the GPU busy for some 100 us, so that the host is ahead of it all round long."""
        torch.cuda._sleep(200_000)

    def after(self) -> None:
        """Read the driver while the round still runs, now and then, and wait for its end."""
        if self.rounds % 16 == 0:
            reading = nvml.read(self.uuid)
            self.readings += [reading] if reading else []
        self.rounds += 1
        self.stream.synchronize()

    def track(self, calls: Sequence[Callable[[], Any]]) -> Track:
        """Capture a candidate: one launch for each set, in one graph where launches are short
        (several times over if need be), in a graph each where they are long."""
        for call in calls[:2]:  # builds, allocates, tunes
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
        """Take fresh memory for graphs. A pool dies with its last graph, so one stays."""
        self.pool = torch.cuda.graph_pool_handle()
        self.anchor = self._capture([lambda: torch.cuda._sleep(1)], rotating=False)

    def _capture(self, calls: Sequence[Callable[[], Any]], rotating: bool) -> torch.cuda.CUDAGraph:
        """One launch of each call. `rotating`: each writes memory of its own, because all results
        live until the end; otherwise each takes what the one before has freed."""
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
            with suppress(RuntimeError):  # says only that the capture has failed
                graph.capture_end()
            self.renew()  # the allocator thinks that the old pool is being captured
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
    """What cannot be captured, launch by launch on the current stream: GPU time from the first
    kernel of a call to its last, with what the host does in between."""
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
    """The wall clock around enough calls to be read well."""

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
        """Call until no call brings in fresh pages, then count what fills a sample."""
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
    """Make the C library keep what is freed, as the CUDA caching allocator does: otherwise every
    large result is fresh pages from the system, whose cost hides the operator's. Linux only."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    trim_threshold, mmap_max = -1, -4
    return mallopt(mmap_max, 0) == 1 and mallopt(trim_threshold, 2**31 - 1) == 1
