"""A fake GPU for tests of `judge`'s timing without a GPU: graphs, a stream, events.

A graph records the PyTorch operators that are called while it is captured, without executing them,
and executes them when it is replayed, in a thread that acts as a stream: `replay` returns at once.
The kernel's process is this one; the requests and answers are those of `sandbox.Process`.
"""

import json
import queue
import threading
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelwright.workbench.judge.sandbox import rounds
from kernelwright.workbench.judge.sandbox.loading import exception_told
from kernelwright.workbench.judge.sandbox.sandbox import SHARED, Arena, Box, Failed, Limits
from kernelwright.workbench.judge.sandbox.worker import Child


class Stream:
    def __init__(self):
        self.work = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self.work.get()()
            self.work.task_done()

    def put(self, fn):
        self.work.put(fn)

    def synchronize(self):
        self.work.join()


STREAM = Stream()


class Event:
    def __init__(self, enable_timing):
        self.at = None

    def record(self):
        STREAM.put(lambda: setattr(self, "at", time.monotonic()))

    def synchronize(self):
        STREAM.synchronize()

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.done = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, out))
        for t in tree_leaves(out):
            if t.is_floating_point() and not any(_shared(t, a) for a in tree_leaves(args)):
                t.fill_(float("nan"))
        return out


def _shared(t, a):
    same = isinstance(a, torch.Tensor) and a.untyped_storage().data_ptr()
    return same == t.untyped_storage().data_ptr()


class Graph:
    def __init__(self, done):
        self.done = done

    def replay(self):
        STREAM.put(self._again)

    def _again(self):
        for func, args, kwargs, out in self.done:
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                old.copy_(new)


def captured(fn):
    with Recorder() as recorder:
        results = fn()
    return Graph(recorder.done), results


class OnGPU(Child):
    """Times like on a GPU, with the CPU's memory."""

    cuda = True

    def do_start(self, *told):
        super().do_start(*told)
        self.synchronize = STREAM.synchronize

    def do_arena(self, arena):
        self.cuda = False
        super().do_arena(arena)
        del self.cuda

    def _tensor(self, t):
        self.cuda = False
        found = super()._tensor(t)
        del self.cuda
        return found


class InProcess:
    """A `sandbox.Process` that runs in this process."""

    def __init__(self, arena):
        self.child, self.asked = OnGPU(-1, -1), []
        self.child.do_start("cpu", arena.told(), torch.get_num_threads())

    def ask(self, do, seconds=None, **request):
        self.asked.append(do)
        told = json.loads(json.dumps(request))
        try:
            return json.loads(json.dumps(getattr(self.child, "do_" + do)(**told)))
        except Exception as e:
            raise Failed(type(e).__name__, str(e), tuple(exception_told(e)["lines"])) from e

    @property
    def alive(self):
        return True

    def close(self):
        self.child.functions.restore()


class FakeBox(Box):
    """Use as a context manager; `monkeypatch` replaces torch's events meanwhile."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(rounds, "captured", captured)
        # a class of its own, because some kernels replace methods of it
        monkeypatch.setattr(torch.cuda, "Event", type("Event", (Event,), {}))
        self.device, self.limits = torch.device("cpu"), Limits()
        self.arena = Arena(self.device, SHARED)
        self.process = InProcess(self.arena)
        self._count, self._released, self.done = 0, [], set()
