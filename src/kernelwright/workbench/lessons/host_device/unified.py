"""Times a kernel on unified memory whose pages are on the host: with page faults, and with a
prefetch before it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import torch

from kernelwright.machine.facts import index_of
from kernelwright.machine.stats import median
from kernelwright.toolchain import driver
from kernelwright.toolchain.driver import check
from kernelwright.workbench.lessons.tables import HERE, Cell, Table

BYTES = 64 << 20
ROUNDS = 5
TITLE = f"A kernel that doubles {BYTES >> 20} MiB of unified memory; its pages are on the host"
_ATTACH_GLOBAL, _CONCURRENT_ACCESS = 1, 89  # CUmemAttach_flags, CUdevice_attribute


def times(device: torch.device) -> Table:
    """Times of the kernel with page faults, of the prefetch, and of the kernel after it.

    Raises:
        ToolchainError: the driver rejects an allocation or a prefetch.
    """
    index = index_of(device)
    if not _faults(index):
        text = "this GPU and its driver move whole allocations, without page faults"
        return Table("unified", TITLE, ("step", "µs"), ((text, "not timed"),), HERE)
    with driver.current(index), _managed() as address:
        samples = _samples(address, index)
    rows: list[tuple[Cell, ...]] = []
    for step, all_us in samples.items():
        us = median(all_us)
        rows.append((step, us, BYTES / us / 1e3))
    return Table("unified", TITLE, ("step", "µs", "GB/s"), tuple(rows), HERE)


def _samples(address: int, index: int) -> dict[str, list[float]]:
    """Microseconds of each step in each round."""
    lib = driver.library()
    lib.cuMemPrefetchAsync.argtypes = (c_uint64, c_size_t, c_int, c_void_p)
    x = torch.as_tensor(_Floats(address), device=f"cuda:{index}")
    stream = torch.cuda.current_stream(index).cuda_stream

    def kernel() -> None:
        x.mul_(2)

    def prefetch() -> None:
        code = lib.cuMemPrefetchAsync(address, BYTES, index, stream)
        check(code, "cuMemPrefetchAsync")

    samples: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        _to_host(address)
        samples.setdefault("kernel, with page faults", []).append(_microseconds(kernel))
        _to_host(address)
        samples.setdefault("prefetch", []).append(_microseconds(prefetch))
        samples.setdefault("kernel after the prefetch", []).append(_microseconds(kernel))
    return samples


class _Floats:
    """Memory at an address, in the form that torch.as_tensor accepts."""

    def __init__(self, address: int):
        self.__cuda_array_interface__ = {
            "shape": (BYTES // 4,),
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
        }


@contextmanager
def _managed() -> Generator[int]:
    """The address of BYTES of unified memory, in the current context."""
    lib, pointer = driver.library(), c_uint64()
    lib.cuMemAllocManaged.argtypes = (c_void_p, c_size_t, c_uint)
    lib.cuMemFree_v2.argtypes = (c_uint64,)
    check(lib.cuMemAllocManaged(byref(pointer), BYTES, _ATTACH_GLOBAL), "cuMemAllocManaged")
    try:
        yield pointer.value
    finally:
        torch.cuda.synchronize()
        check(lib.cuMemFree_v2(pointer), "cuMemFree")


def _faults(index: int) -> bool:
    """Whether the GPU moves single pages when it accesses them."""
    lib, attribute = driver.library(), c_int()
    lib.cuDeviceGetAttribute.argtypes = (c_void_p, c_int, c_int)
    code = lib.cuDeviceGetAttribute(byref(attribute), _CONCURRENT_ACCESS, index)
    check(code, "cuDeviceGetAttribute")
    return bool(attribute.value)


def _to_host(address: int) -> None:
    """Write the memory on the host, which moves its pages there."""
    torch.cuda.synchronize()
    ctypes.memset(address, 0, BYTES)


def _microseconds(work: Callable[[], object]) -> float:
    """GPU time of work on the current stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3
