"""The accesses of one warp of an emulated kernel, in order. Pictures of data movement are drawn
from them.

    look = Trace()
    with look.mode():
        run = dispatch.launcher(ladder, args, "cuda_warp", config)
    launches = look.call(run, args)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from kernelwright.contract import CudaKernel, Launch, Pointers, Scalar

from .. import build
from ..dissect.lines import Place, places_of
from ..launch import Schedule

__all__ = ["Request", "Trace", "Traced"]

HERE = Path(__file__).resolve().parent
_WRITE, _ATOMIC = 1, 4


class _Event(Structure):
    _fields_ = [
        *((n, c_uint64) for n in ("where", "address")),
        *((n, c_uint32) for n in ("lane", "bytes", "kind", "shared")),
    ]


@dataclass(frozen=True)
class Request:
    """A memory instruction that lanes of the warp execute together: each lane's n-th execution of
    it belongs to the n-th request.

    Attributes:
        kind: "load", "store" or "atomic".
        memory: the tensor's name; "shared".
        width: bytes per lane.
        offsets: by lane, from the tensor's first byte or from the start of shared memory.
    """

    place: Place
    kind: str
    memory: str
    width: int
    offsets: dict[int, int]


@dataclass(frozen=True)
class Traced:
    """A launch: the requests of its first block's first warp, in the order of the first lane that
    takes part. `sizes`: bytes of each tensor."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    requests: tuple[Request, ...]
    sizes: dict[str, int]


class Trace:
    """Traces the launches of one call."""

    def __init__(self) -> None:
        self._done: list[Traced] = []
        self._step: Launch | None = None
        self._spans: dict[str, tuple[int, int]] = {}

    def mode(self):
        """Launches bound inside the block are traced."""
        from .. import mode

        schedule = Schedule(workers=1, patience=0)
        return mode("dissected", schedule, _library().kw_trace_observer(), self._before)

    def call(self, run: Callable[..., Any], args: dict[str, Any]) -> list[Traced]:
        """Call `run` and return the trace of its launches."""
        self._done, self._step = [], None
        run(*args.values())
        self._collect()
        return self._done

    def _before(self, step: Launch, values: Sequence[Any]) -> None:
        self._collect()
        self._step = step
        self._spans = {}
        for argument, value in zip(step.args, values, strict=True):
            if not isinstance(argument, (Pointers, Scalar)) and not isinstance(value, Scalar):
                start = value.data_ptr()
                end = start + value.numel() * value.element_size()
                self._spans.setdefault(str(argument), (start, end))
        _library().kw_trace_begin()

    def _collect(self) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        count = c_size_t()
        raw = _library().kw_trace_events(byref(count))
        events = [raw[i] for i in range(count.value)]
        assert isinstance(step.kernel, CudaKernel)
        places = places_of(step.kernel.source, sorted({e.where for e in events}), [])
        sizes = {name: end - start for name, (start, end) in self._spans.items()}
        requests = tuple(self._requests(events, places))
        name = step.kernel.name
        self._done.append(Traced(name, step.grid, step.block, requests, sizes))

    def _requests(self, events: list[_Event], places: dict[int, Place]) -> list[Request]:
        times: dict[tuple[int, int], int] = {}
        together: dict[tuple[int, int], Request] = {}
        for e in events:
            turn = times.get((e.where, e.lane), 0)
            times[e.where, e.lane] = turn + 1
            memory, start = self._memory(e)
            if memory is None:
                continue
            kind = "atomic" if e.kind & _ATOMIC else "store" if e.kind & _WRITE else "load"
            request = Request(places[e.where], kind, memory, e.bytes, {})
            request = together.setdefault((e.where, turn), request)
            request.offsets[e.lane] = e.address - start
        return list(together.values())

    def _memory(self, e: _Event) -> tuple[str | None, int]:
        """The tensor that an access touches and its address; None for constants."""
        if e.shared:
            return "shared", 0
        for name, (start, end) in self._spans.items():
            if start <= e.address < end:
                return name, start
        return None, 0


@once
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build.observer(HERE)))
    lib.kw_trace_observer.restype = c_void_p
    lib.kw_trace_begin.restype = None
    lib.kw_trace_events.argtypes = (POINTER(c_size_t),)
    lib.kw_trace_events.restype = POINTER(_Event)
    return lib
