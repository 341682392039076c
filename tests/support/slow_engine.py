"""An engine whose steps a test allows one by one, or lets fail."""

from __future__ import annotations

import threading
import time

from kernelwright.infer.engine import Output, Request, Statistics


class SlowEngine:
    """Each step gives every request its next token, the number of its tokens so far.

    Attributes:
        allowed: released once for each step that may run.
        cancelled: ids.
        failure: what the next steps raise.
        requests: with the number of their tokens, by id.
    """

    def __init__(self):
        self.allowed = threading.Semaphore(0)
        self.cancelled: list[int] = []
        self.failure: Exception | None = None
        self.requests: dict[int, tuple[Request, int]] = {}
        self._next = 0

    def add(self, request: Request) -> int:
        self._next += 1
        self.requests[self._next] = request, 0
        return self._next

    def cancel(self, id: int) -> None:
        self.cancelled.append(id)
        self.requests.pop(id, None)

    @property
    def busy(self) -> bool:
        return bool(self.requests)

    def step(self) -> list[Output]:
        if not self.allowed.acquire(blocking=False):
            time.sleep(0.002)
            return []
        if self.failure is not None:
            raise self.failure
        outputs = []
        for id, (request, count) in list(self.requests.items()):
            finish = "length" if count + 1 == request.max_tokens else ""
            outputs.append(Output(id, 0, 97 + count % 26, finish=finish))
            self.requests[id] = request, count + 1
            if finish:
                del self.requests[id]
        return outputs

    def statistics(self) -> Statistics:
        return Statistics(len(self.requests), 0, 8, 0, 0, 0, 0, 0, 0, 0)
