"""Kernels that cheat whoever shares a process with them, each with what `judge` must say.

They look for the answer instead of computing it, or know the values that everybody is shown.
Where they find nothing they return zeros: in a process of their own they find nothing.
"""

import gc
import os
import sys
import threading
import time

import torch

from .kernels import rejected_by, softmax

CHEATS = []


def cheats(check, **how):
    """Put the kernel that a function makes into CHEATS."""
    return rejected_by(check, into=CHEATS, **how)


def fits(t, x):
    return isinstance(t, torch.Tensor) and t.shape == x.shape and t.dtype == torch.float64


def zeros(x):
    return torch.zeros(x.shape, dtype=x.dtype, device=x.device)


@cheats("value")
def reference_found_by_the_collector():
    def call(x, dim):
        found = [t for t in gc.get_objects() if fits(t, x)]
        return found[-1].to(x.dtype) if found else zeros(x)

    return call


@cheats("value")
def reference_found_in_a_frame():
    def call(x, dim):
        frame = sys._getframe()
        while frame:
            for value in frame.f_locals.values():
                for t in getattr(value, "reference", ()) or ():
                    if fits(t, x):
                        return t.to(x.dtype)
            frame = frame.f_back
        return zeros(x)

    return call


@cheats("value")
def reference_found_in_shared_memory():
    """Looks through everything that its argument shares memory with for rows that sum to 1: on a
    CPU a buffer with its fences, on a GPU whatever the judge shares, where it looks wherever a
    tensor may begin."""

    def call(x, dim):
        shared = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
        step = 1 if len(shared) < 2**20 else 512 // x.itemsize
        starts = (len(shared) - x.numel()) // step + 1
        windows = shared.as_strided((starts, *x.shape), (step, *zeros(x).stride()))
        for some in windows.split(2**13):
            sums = some.sum(-1)
            close = torch.isclose(sums, torch.ones_like(sums)).all(-1) & (some >= 0).all(-1).all(-1)
            if bool(close.any()):
                return some[close.nonzero()[0, 0]].clone()
        return zeros(x)

    return call


@cheats("value")
def result_found_in_a_file():
    """Looks into the shared memory that the system shows as files."""

    def call(x, dim):
        wanted = x.numel() * 8
        for name in os.listdir("/dev/shm"):
            path = os.path.join("/dev/shm", name)
            if os.path.isfile(path) and os.path.getsize(path) == wanted:
                with open(path, "rb") as file:
                    found = torch.frombuffer(bytearray(file.read()), dtype=torch.float64)
                return found.view(x.shape).to(x.dtype)
        return zeros(x)

    return call


@cheats("value")
def right_for_the_shown_seed():
    """Knows the values that the case has by default, and is exact on those alone."""
    from kernelwright.contract import case
    from kernelwright.ops.softmax.spec import inputs

    shown = inputs(case((5, 33), torch.float32, dim=-1), "cpu")["x"]

    def call(x, dim):
        known = x.shape == shown.shape and torch.equal(x.cpu(), shown)
        return softmax(x, dim) if known else softmax(x.half(), dim).to(x.dtype)

    return call


@cheats("fresh data")
def right_for_the_first_values():
    """Computes once for each shape, and answers with that from then on."""
    known = {}

    def call(x, dim):
        key = x.shape, dim
        if key not in known:
            known[key] = x.clone(), softmax(x, dim)
        same = torch.equal(known[key][0], x)
        return known[key][1].clone() if same or len(known) else softmax(x, dim)

    return call


@cheats("promised")
def computes_when_asked():
    """A generator: nothing has been computed when the call returns."""

    def call(x, dim):
        yield softmax(x, dim)

    return call


@cheats("promised")
def result_that_only_pretends():
    """No tensor, but whatever is asked of it is asked of one that is made then."""

    class Later:
        def __init__(self, make):
            self.make = make

        def __getattr__(self, name):
            return getattr(self.make(), name)

    return lambda x, dim: Later(lambda: softmax(x, dim))


@cheats("value")
def written_after_the_call():
    """Returns its memory and fills it in later, from a thread."""

    def call(x, dim):
        y = zeros(x)

        def fill():
            time.sleep(0.05)
            y.copy_(softmax(x, dim))

        threading.Thread(target=fill, daemon=True).start()
        return y

    return call


@cheats("nothing replaced")
def allocator_patched():
    """Hands out memory that holds what was there before."""
    kept = {}

    def call(x, dim):
        torch.empty_like = lambda t, **how: kept.setdefault(t.shape, torch.zeros_like(t))
        return softmax(x, dim)

    return call


@cheats("nothing replaced")
def events_patched():
    """Makes every GPU time that its process reads a hundredth."""

    def call(x, dim):
        elapsed = torch.cuda.Event.elapsed_time
        torch.cuda.Event.elapsed_time = lambda self, end: elapsed(self, end) / 100
        return softmax(x, dim)

    return call


@cheats("nothing replaced")
def collector_patched():
    def call(x, dim):
        gc.get_objects = list
        return softmax(x, dim)

    return call
