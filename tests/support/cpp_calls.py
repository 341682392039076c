"""Calls in C++ (toolchain/cpp_extension) and in Python, with a driver that records launches."""

import ctypes
import threading
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from tools.prove_calls import Switch

from kernelwright.toolchain import driver, gpu_executor

#: Of the part of a parameter that is recorded; that of a tensor map is the tensor's address.
SIZES = {"pointer": 8, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "tensor_map": 8}
HEAD = 11  # words before a launch's parameters


class Kernel(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int), ("sizes", ctypes.c_int * 64)]


@contextmanager
def recording():
    """Inside `hosted`: launches are recorded, with all their parameters. Yields a function that
    returns those since it was called last: (kernel, words of its launch, parameters), a parameter
    being (kind, word)."""
    library, kernels, latest = driver.library(), [], threading.local()
    real, function = gpu_executor._launcher, driver.function

    def launcher(step, tensors, device):
        kernel = Kernel(len(step.kinds))
        for i, kind in enumerate(step.kinds):
            kernel.sizes[i] = SIZES.get(kind, 0)
        kernels.append((kernel, step.kinds, repr(step.kernel)))
        launcher = real(step, tensors, device)

        def named(*attributes):
            latest.kernel = ctypes.addressof(kernel)
            return launcher(*attributes)

        return named

    def handle(*given):
        function(*given)  # which the driver may refuse
        return latest.kernel

    flag, logged = (ctypes.c_int.in_dll(library, n) for n in ("recording", "logged"))
    words = (ctypes.c_uint64 * (1 << 16)).in_dll(library, "log_words")

    def taken():
        assert logged.value <= len(words), "more launches than the log holds: read it more often"
        found, at = [], 0
        addresses = {ctypes.addressof(k): (kinds, name) for k, kinds, name in kernels}
        while at < logged.value:
            head = words[at : at + HEAD]
            kinds, name = addresses[head[0]]
            values = words[at + HEAD : at + HEAD + head[-1]]
            found.append((name, head[1:], list(zip(kinds, values, strict=True))))
            at += HEAD + head[-1]
        logged.value = 0
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_executor, "_launcher", launcher)
        patch.setattr(driver, "function", handle)
        flag.value = 1
        yield taken
        flag.value = 0
    assert function is driver.function


_switch = cache(Switch)


@contextmanager
def in_cpp():
    """Call operators in C++ inside the block. Yields a context manager in which they are called in
    Python."""
    switch = _switch()
    switch.set(True)

    @contextmanager
    def outside():
        switch.set(False)
        try:
            yield
        finally:
            switch.set(True)

    try:
        yield outside
    finally:
        switch.set(False)


def labelled(launches, tensors):
    """Launches with names instead of addresses: tensors' names, and numbered names for others."""
    names = {t.data_ptr(): name for name, t in tensors.items() if t is not None and t.numel()}
    others = {}

    def label(kind, word):
        if kind not in ("pointer", "tensor_map") or word == 0:
            return kind, word
        return names.get(word) or others.setdefault(word, ("address", len(others)))

    return [(kernel, head, [label(*p) for p in given]) for kernel, head, given in launches]


def told(t):
    """The attributes of a tensor other than its data."""
    if not isinstance(t, torch.Tensor):
        return t
    node = t.grad_fn and t.grad_fn.name()
    return t.shape, t.stride(), t.dtype, t.requires_grad, t._version, node, t.is_leaf, t.output_nr
