"""Kernels as users write them, for the tests of `judge`."""

import os
import sys
import time
from pathlib import Path

import torch


def softmax(x, dim):
    return torch.softmax(x, dim)


def last_dim(x):
    return torch.softmax(x, -1)


def keywords(*, dim, x):
    return torch.softmax(x, dim)


def picky(x, dim):
    if x.dtype != torch.float32:
        raise ValueError(f"x: must be float32, is {x.dtype}")
    return torch.softmax(x, dim)


def never(x, dim):
    raise NotImplementedError("x: not today")


def softmax_backward(gy, y, dim):
    return torch._softmax_backward_data(gy, y, dim, y.dtype)


def forgets_the_sum(gy, y, dim):
    return gy * y


class DetachedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.save_for_backward(torch.softmax(x, dim))
        return ctx.saved_tensors[0] if ctx.saved_tensors else torch.softmax(x, dim)

    @staticmethod
    def backward(ctx, gy):
        (y,) = ctx.saved_tensors
        return gy * y, None


def wrong_gradient(x, dim):
    return DetachedGradient.apply(x, dim)


def raises_in_a_helper(x, dim):
    return _helper(x)


def _helper(x):
    raise ArithmeticError("no softmax today")


def hangs(x, dim):
    time.sleep(60)


def crashes(x, dim):
    os.abort()


def eats_memory(x, dim):
    kept = []
    while True:
        kept.append(torch.ones(1 << 24))


def leaves(x, dim):
    sys.exit(7)


def answers_nonsense(x, dim):
    for fd in range(3, 64):
        try:
            os.write(fd, b"\x10\x00\x00\x00this is no JSON!")
        except OSError:
            continue
    return torch.softmax(x, dim)


def five(a, b, c, d, e):
    return a


def tells(x, dim):
    """Writes down where it runs; the test reads it."""
    names = ("SECRET_TOKEN", "HOME", "TRITON_CACHE_DIR", "LIBRARY_PATH")
    said = {k: os.environ.get(k, "") for k in names}
    Path(os.environ["TMPDIR"], "said").write_text(repr(said))
    raise ValueError(repr(said))


def several_kernels(x, dim):
    e = torch.exp(x.float() - x.float().amax(dim, keepdim=True))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


class Stops:
    """Computes the first times, and then answers with what it has."""

    def __init__(self):
        self.calls, self.known = 0, {}

    def __call__(self, x, dim):
        self.calls += 1
        if self.calls <= 6 or x.shape not in self.known:
            self.known[x.shape] = torch.softmax(x, dim)
        return self.known[x.shape]


class SlowClock:
    """Makes its process's clock go slower once it has been looked at."""

    def __init__(self):
        self.calls, self.clock = 0, time.perf_counter

    def __call__(self, x, dim):
        self.calls += 1
        if self.calls > 3:
            time.perf_counter = lambda: self.clock() / 5
        return torch.softmax(x, dim)


class SlowEvents:
    """Makes its process's GPU events say that less has passed between them."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x, dim):
        self.calls += 1
        if self.calls == 4:
            elapsed = torch.cuda.Event.elapsed_time
            torch.cuda.Event.elapsed_time = lambda begin, end: elapsed(begin, end) / 5
        return torch.softmax(x, dim)


class Others:
    """Computes for every third call that is recorded, and hands that out to the next two."""

    def __init__(self):
        self.calls, self.known = 0, None

    def __call__(self, x, dim):
        self.calls += 1
        if self.calls < 10 or self.calls % 3 == 0:
            self.known = torch.softmax(x, dim)
        return self.known


class DiesLate:
    """Computes until it has been called often, and then ends its process."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x, dim):
        self.calls += 1
        if self.calls > 30:
            os.abort()
        return torch.softmax(x, dim)


number = 3
