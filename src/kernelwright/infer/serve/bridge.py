"""The engine in a thread of its own, between which and asyncio requests and outputs go."""

from __future__ import annotations

import asyncio
import queue
import threading
import traceback
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.infer.engine import Engine, Output, Request
from kernelwright.support.errors import UserError

from .errors import RequestError, refused

Item = tuple[int, Output]  # the number of a request in its stream, and an output


class Stream:
    """The outputs of the engine's requests that answer one HTTP request. Used by asyncio only.

    Args:
        requests: they are numbered in this order.
        timeout: seconds after which the stream fails.
    """

    def __init__(self, bridge: Bridge, requests: Sequence[Request], timeout: float):
        self.requests = requests
        self.loop = asyncio.get_running_loop()
        self.waiting = set(range(len(requests)))  # that have no output yet
        self._bridge = bridge
        self._arrived: asyncio.Queue[list[Item] | RequestError] = asyncio.Queue()
        late = RequestError(504, f"the answer took more than {timeout:g} seconds", code="timeout")
        self._timer = self.loop.call_later(timeout, self.put, late)

    async def next(self) -> list[Item]:
        """The outputs of the next step that has some for this stream.

        Raises:
            RequestError: the engine refuses a request or has failed, or the time is over.
        """
        arrived = await self._arrived.get()
        if isinstance(arrived, RequestError):
            raise arrived
        return arrived

    def put(self, arrived: list[Item] | RequestError) -> None:
        if not isinstance(arrived, RequestError):
            self._started({number for number, _ in arrived})
        self._arrived.put_nowait(arrived)

    def cancel(self, number: int) -> None:
        """End one of the requests; it may have finished."""
        self._bridge.cancel(self, number)

    def close(self) -> None:
        """End all requests. A stream must be closed, whatever happens."""
        self._timer.cancel()
        self._started(self.waiting)
        self._bridge.cancel(self, None)

    def _started(self, numbers: set[int]) -> None:
        started = self.waiting & numbers
        self._bridge.waiting -= len(started)
        self.waiting -= started


@dataclass(frozen=True)
class _Add:
    stream: Stream


@dataclass(frozen=True)
class _Cancel:
    stream: Stream
    number: int | None  # None for all of its requests


class _Stop:
    pass


class Bridge:
    """Runs the engine's steps in one thread while there is work.

    Args:
        most_waiting: the number of requests that may wait for their first token.

    Attributes:
        waiting: the number of requests that wait for their first token.
        error: what ended the engine, or None.
        statistics: the engine's, after its last step.
    """

    def __init__(self, engine: Engine, most_waiting: int):
        self.waiting = 0
        self.error: BaseException | None = None
        self.statistics = engine.statistics()
        self._engine, self._most_waiting = engine, most_waiting
        self._commands: queue.SimpleQueue[_Add | _Cancel | _Stop] = queue.SimpleQueue()
        self._streams: dict[int, tuple[Stream, int]] = {}  # by the engine's id, with the number
        self._unfinished: dict[int, int] = {}  # how many of a request's n texts, by id
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current step; open streams fail."""
        self._commands.put(_Stop())
        self._thread.join()

    def submit(self, requests: Sequence[Request], timeout: float) -> Stream:
        """Give requests to the engine; the stream of their outputs must be closed.

        Args:
            timeout: seconds that they may take together.

        Raises:
            RequestError: too many wait.
        """
        if self.waiting + len(requests) > self._most_waiting:
            message = (
                f"{self.waiting} requests wait for their first token; at most "
                f"{self._most_waiting} may. Try again later"
            )
            raise RequestError(429, message, code="queue_full")
        stream = Stream(self, requests, timeout)
        with self._lock:
            if self.error is None:
                self._commands.put(_Add(stream))
            else:
                stream.put(_failed(self.error))
        self.waiting += len(requests)
        return stream

    def cancel(self, stream: Stream, number: int | None) -> None:
        self._commands.put(_Cancel(stream, number))

    def _run(self) -> None:
        try:
            while self._obey():
                if self._engine.busy:
                    self._send(self._engine.step())
                self.statistics = self._engine.statistics()
        except BaseException as e:  # noqa: BLE001 - a thread's error would be lost
            traceback.print_exc()
            self._fail(e)

    def _obey(self) -> bool:
        """Carry out the commands that have come, and wait for one if there is nothing to do.
        False: the thread must end."""
        block = not self._engine.busy
        while True:
            try:
                command = self._commands.get(block)
            except queue.Empty:
                return True
            block = False
            if isinstance(command, _Stop):
                self._fail(RuntimeError("the server is being stopped"))
                return False
            if isinstance(command, _Add):
                self._add(command.stream)
            else:
                self._cancel(command)

    def _add(self, stream: Stream) -> None:
        try:
            for number, request in enumerate(stream.requests):
                id = self._engine.add(request)
                self._streams[id] = stream, number
                self._unfinished[id] = request.n
        except UserError as e:
            self._cancel(_Cancel(stream, None))
            _call(stream.loop, stream.put, refused(e))

    def _cancel(self, command: _Cancel) -> None:
        meant = command.stream, command.number
        for id in [i for i, (s, n) in self._streams.items() if meant in ((s, n), (s, None))]:
            del self._streams[id], self._unfinished[id]
            self._engine.cancel(id)

    def _send(self, outputs: Sequence[Output]) -> None:
        """Give each stream its outputs, with one call per event loop."""
        by_stream: dict[Stream, list[Item]] = defaultdict(list)
        for output in outputs:
            if output.id not in self._streams:  # it was cancelled
                continue
            stream, number = self._streams[output.id]
            by_stream[stream].append((number, output))
            self._unfinished[output.id] -= bool(output.finish)
            if not self._unfinished[output.id]:
                del self._streams[output.id], self._unfinished[output.id]
        by_loop: dict[Any, list[tuple[Stream, list[Item]]]] = defaultdict(list)
        for stream, items in by_stream.items():
            by_loop[stream.loop].append((stream, items))
        for loop, parts in by_loop.items():
            _call(loop, _put, parts)

    def _fail(self, error: BaseException) -> None:
        """Answer every request, also those that have not reached the engine, with the error."""
        with self._lock:  # no request comes after the last one that is answered here
            self.error = error
        streams = {stream for stream, _ in self._streams.values()}
        self._streams.clear()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                break
            if isinstance(command, _Add):
                streams.add(command.stream)
        for stream in streams:
            _call(stream.loop, stream.put, _failed(error))


def _put(parts: list[tuple[Stream, list[Item]]]) -> None:
    for stream, items in parts:
        stream.put(items)


def _failed(error: BaseException) -> RequestError:
    kind = type(error).__name__
    return RequestError(500, f"the engine has failed: {kind}: {error}", code="engine_failed")


def _call(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
