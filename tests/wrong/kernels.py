"""Kernels that are wrong, each in one way, with the check that must reject it.

The functions below make a fresh kernel each: some keep what they saw.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernelwright.contract import Case, Operator, TensorSpec, case
from kernelwright.toolchain import memory

from .operators import GELU, LYING_FAKE, SOFTMAX, TANH, gelu_reference

WRONG = []


@dataclass(frozen=True)
class Wrong:
    name: str
    make: Callable
    check: str  # the one that must reject it
    operator: Operator
    native: Callable
    case: Case
    gpu: bool


def softmax(x, dim=-1):
    return torch.softmax(x, dim).contiguous()


def tanh(x):
    return torch.tanh(x).contiguous()


NATIVE = {SOFTMAX: softmax, GELU: gelu_reference, TANH: tanh, LYING_FAKE: tanh}


def rejected_by(check, operator=SOFTMAX, shape=(5, 33), gpu=False, into=WRONG, **how):
    """Put the kernel that a function makes into WRONG, or into another list."""
    dtype = how.pop("dtype", torch.float32)
    if operator is SOFTMAX:
        how["dim"] = -1
    found = case(shape, dtype, **how)

    def enter(make):
        wrong = Wrong(make.__name__, make, check, operator, NATIVE[operator], found, gpu)
        into.append(wrong)
        return make

    return enter


def empty_result(x):
    """Allocated as a rung's results are: between red zones where a guard watches."""
    spec = TensorSpec.contiguous(x.shape, x.dtype)
    if memory.active is not None:
        return memory.active.empty("y", spec, x.device)
    return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=x.device)


@rejected_by("value")
def all_zeros():
    return lambda x, dim: torch.zeros(x.shape, dtype=x.dtype, device=x.device)


@rejected_by("value")
def all_nan():
    return lambda x, dim: torch.full(x.shape, math.nan, dtype=x.dtype, device=x.device)


@rejected_by("value")
def input_copied_through():
    return lambda x, dim: x.clone()


@rejected_by("value")
def low_precision():
    return lambda x, dim: softmax(x.bfloat16(), dim).to(x.dtype)


@rejected_by("value")
def wrong_tail():
    """Handles columns four at a time and leaves the rest of a row unnormalised."""

    def call(x, dim):
        y = softmax(x, dim)
        whole = x.shape[-1] // 4 * 4
        y[..., whole:] = torch.exp(x[..., whole:])
        return y

    return call


@rejected_by("value", values="large")
def no_maximum_subtracted():
    def call(x, dim):
        e = torch.exp(x)
        return (e / e.sum(dim, keepdim=True)).contiguous()

    return call


@rejected_by("value", values="nan", shape=(4, 66))
def nan_swallowed():
    return lambda x, dim: softmax(x.nan_to_num(0.0), dim)


@rejected_by("value", values="neginf_row", shape=(4, 66))
def minus_infinite_row_is_zero():
    return lambda x, dim: softmax(x, dim).nan_to_num(0.0)


@rejected_by("value", GELU, shape=(2000,))
def fast_tanh_in_the_negative_tail():
    """1 + tanh u cancels for negative u: a few wrong digits of tanh are all of the result."""

    def fast_tanh(u):
        e = torch.exp(2 * u).bfloat16().float()
        return (e - 1) / (e + 1)

    def call(x):
        u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        exact = F.gelu(x, approximate="tanh")
        return torch.where(x < -2.5, 0.5 * x * (1 + fast_tanh(u)), exact)

    return call


@rejected_by("value", layout="sliced", shape=(6, 40))
def strides_ignored():
    """Reads the rows of a sliced tensor as if they lay end to end."""
    return lambda x, dim: softmax(x.as_strided(x.shape, (x.shape[-1], 1)), dim)


@rejected_by("properties", TANH, values="large")
def an_ulp_above_one():
    """Within the budget of errors, and outside of what tanh can be."""

    def call(x):
        y = tanh(x)
        return torch.where(y == 1, torch.nextafter(y, 2 * y), y)

    return call


@rejected_by("arguments untouched")
def input_mutated():
    """Works in place and puts back all but the largest element."""

    def call(x, dim):
        y = softmax(x, dim)
        x.view(-1)[x.argmax()] -= 1
        return y

    return call


@rejected_by("arguments untouched", layout="sliced", shape=(6, 40))
def gap_between_rows_written():
    def call(x, dim):
        y = softmax(x, dim)
        x.as_strided((1,), (1,), x.storage_offset() + x.shape[-1]).fill_(0)
        return y

    return call


@rejected_by("allocations")
def stale_output():
    """Launches nothing: counts on memory that held the answer before."""
    return lambda x, dim: empty_result(x)


@rejected_by("allocations")
def last_element_unwritten():
    def call(x, dim):
        y = empty_result(x)
        y.view(-1)[:-1] = softmax(x, dim).view(-1)[:-1]
        return y

    return call


@rejected_by("allocations")
def written_out_of_bounds():
    """A last vector of four is stored whole."""

    def call(x, dim):
        y = empty_result(x)
        y.copy_(softmax(x, dim))
        if y.untyped_storage().nbytes() > y.nbytes:
            y.as_strided((1,), (1,), y.storage_offset() + y.numel()).fill_(0)
        return y

    return call


@rejected_by("promised", dtype=torch.float16)
def wrong_dtype():
    return lambda x, dim: torch.softmax(x.float(), dim)


@rejected_by("promised", layout="permuted", shape=(6, 40))
def wrong_strides():
    return lambda x, dim: torch.softmax(x.mT.contiguous(), -2).mT


@rejected_by("promised")
def wrong_shape():
    return lambda x, dim: softmax(x, dim).view(-1)


@rejected_by("promised")
def lazy_result():
    """A tensor that would compute itself when somebody looks."""

    class Lazy(torch.Tensor):
        pass

    return lambda x, dim: softmax(x, dim).as_subclass(Lazy)


@rejected_by("fake", LYING_FAKE, layout="permuted", shape=(6, 40))
def fake_says_otherwise():
    """Right, but torch.compile would be told other strides."""
    return tanh


@rejected_by("nothing replaced")
def timer_patched():
    """Makes the clock of whoever measures in its process go slower."""

    def call(x, dim):
        clock = time.perf_counter
        time.perf_counter = lambda: clock() / 10
        return softmax(x, dim)

    return call


@rejected_by("nothing replaced")
def torch_function_patched():
    """Makes every comparison that its process makes agree."""

    def call(x, dim):
        torch.allclose = lambda *args, **kwargs: True
        return x.clone()

    return call


@rejected_by("nothing replaced")
def synchronisation_patched():
    """Lets nobody in its process wait for it."""

    def call(x, dim):
        torch.cuda.synchronize = lambda *args: None
        return softmax(x, dim)

    return call


@rejected_by("no thread left")
def thread_left_behind():
    def call(x, dim):
        threading.Thread(target=time.sleep, args=(0.2,), daemon=True).start()
        return softmax(x, dim)

    return call


@rejected_by("results apart")
def one_buffer_for_all_calls():
    buffers = {}

    def call(x, dim):
        y = softmax(x, dim)
        return buffers.setdefault((x.shape, x.dtype), torch.empty_like(y)).copy_(y)

    return call


@rejected_by("fresh data")
def output_cached_by_pointer():
    kept = {}

    def call(x, dim):
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = (x, softmax(x, dim))
        return kept[x.data_ptr()][1].clone()

    return call


@rejected_by("other addresses")
def addresses_captured():
    """Goes on reading where the arguments of the last call that was repeated lay, like a graph
    replayed without copying the new ones in."""
    last, captured = [None], [None]

    def call(x, dim):
        if x.data_ptr() == last[0]:
            captured[0] = x
        last[0] = x.data_ptr()
        usable = captured[0] is not None and captured[0].shape == x.shape
        return softmax(captured[0] if usable else x, dim)

    return call


@rejected_by("another shape")
def right_for_the_shown_shape():
    """Keeps the number of columns it was first called with."""
    columns = []

    def call(x, dim):
        columns.append(x.shape[-1])
        y = softmax(x, dim)
        y[..., columns[0] :] = 0
        return y

    return call


@rejected_by("repeatable")
def not_deterministic():
    """Right each time, but the last bit of some element changes, as after atomic additions."""

    def call(x, dim):
        y = softmax(x, dim)
        some = torch.randint(y.numel(), (1,), device=y.device)
        y.view(-1)[some] = torch.nextafter(y.view(-1)[some], torch.ones_like(some, dtype=y.dtype))
        return y

    return call


@rejected_by("current stream", shape=(4, 1000), gpu=True)
def side_stream():
    """Waits for the arguments, but nobody waits for the result."""
    streams = []

    def call(x, dim):
        if not streams:
            streams.append(torch.cuda.Stream())
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        streams[0].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(2_000_000)
            return y.copy_(softmax(x, dim))

    return call


@rejected_by("memory flat", gpu=True)
def memory_leaked():
    kept = []

    def call(x, dim):
        kept.append(softmax(x, dim))
        return kept[-1].clone()

    return call


@rejected_by("graph replay", gpu=True)
def answer_captured():
    """Under capture, records a copy of an answer that it has already."""
    last = {}

    def call(x, dim):
        if torch.cuda.is_current_stream_capturing():
            return last[x.shape].clone()
        last[x.shape] = softmax(x, dim)
        return last[x.shape].clone()

    return call
