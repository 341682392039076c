"""Lists of tensors: keys that identify equal plans, and arrays of the elements' addresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from types import ModuleType

import torch

from kernelwright.contract import CudaKernel
from kernelwright.machine import gpu_of

from . import c_extensions, driver, modes, nvrtc

WORDS = 2048  # addresses that one launch writes, 16 of the 32 KiB that its arguments may take
SOURCE = c_extensions.SOURCE.with_name("addresses.cu")


@cache
def module() -> ModuleType:
    """tensor_lists.c, built and connected to PyTorch.

    Raises:
        ToolchainError: see `c_extensions.module`.
    """
    lists = c_extensions.module("tensor_lists")
    lists.set_exchange(torch.Tensor.__dlpack_c_exchange_api__)
    return lists


def in_c() -> bool:
    """Whether lists are read in C: on a GPU, where host time matters and launches need a C compiler
    anyway."""
    return modes.has_gpu() and c_extensions.compiler() is not None


@cache
def describer() -> Callable[[list[torch.Tensor]], Hashable]:
    """A function that maps a list of tensors to a key of everything that rungs depend on: devices,
    dtypes, shapes, strides, alignments."""
    return module().describe if in_c() else describe


def describe(tensors: list[torch.Tensor]) -> tuple:
    """The Python version of `describer`'s function, ten times slower."""
    return tuple((t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15) for t in tensors)


class Addresses:
    """The device array behind a `Pointers` argument.

    A call compares its addresses with those in the array of its stream; in most calls they are
    equal. If they differ (a gradient was reallocated), a small kernel on the stream writes them
    from its own arguments. A graph that captures the kernel then holds them by value, and no host
    memory has to outlive the call. Each captured call gets its own array, because its graph may run
    concurrently with anything.
    """

    def __init__(self, count: int, device: torch.device):
        assert device.index is not None
        self.bytes, self.device = 8 * count, device
        self.gather, self.capture_id = module().addresses, driver.launchers().capture_id
        self.known: dict[int, tuple[bytes, torch.Tensor]] = {}
        self.write = _writer(device.index)

    def __call__(self, stream: int, lists: tuple[list[torch.Tensor], ...]) -> int:
        addresses = self.gather(lists)
        known = self.known.get(stream)
        if known and known[0] == addresses and not self.capture_id(stream):
            return known[1].data_ptr()
        return self._write(stream, addresses, known)

    def _write(self, stream: int, addresses: bytes, known) -> int:
        captured = self.capture_id(stream)
        fresh = captured or not known
        array = (
            torch.empty(self.bytes, dtype=torch.uint8, device=self.device) if fresh else known[1]
        )
        if not captured:
            self.known[stream] = addresses, array
        for first in range(0, self.bytes // 8, WORDS):
            words = addresses[8 * first : 8 * (first + WORDS)]
            padded = words.ljust(8 * WORDS, b"\0")
            self.write(stream, array.data_ptr(), padded, first, len(words) // 8)
        return array.data_ptr()


@cache
def _writer(index: int) -> Callable:
    """`write(stream, array, words, first, count)` on a device."""
    gpu = gpu_of(torch.device("cuda", index))
    assert gpu is not None
    compiled = nvrtc.compile(CudaKernel(SOURCE, "write_addresses"), gpu.arch)
    return driver.launchers().Launcher(
        "write_addresses",
        driver.function(compiled, index, 0, 1),
        driver.context(index),
        (1, 1, 1),
        (256, 1, 1),
        0,
        1,
        False,
        (("p", None), ("b", 8 * WORDS), ("l", None), ("i", None)),
    )
