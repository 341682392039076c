"""Tensor maps as passed to a launch: 128 bytes that the driver encodes from a `TensorMap` and an
address."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

import torch

from kernelwright.contract import TensorMap
from kernelwright.contract.tensor_map import MOST_DIMENSIONS

from . import driver
from .build import Tensors

Numbers = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # shape, strides, box
MOST = 1024  # layouts of one argument whose encodings are kept

# CUtensorMapDataType. Only the zero fill outside a tensor depends on the type, and zero has the
# same bits in all of them, so an 8-bit float uses the unsigned integer of its size.
_DTYPES = {
    torch.uint8: 0,
    torch.int8: 0,
    torch.float8_e4m3fn: 0,
    torch.float8_e5m2: 0,
    torch.int32: 3,
    torch.int64: 5,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle


def encoder(map: TensorMap, tensors: Tensors, device: torch.device) -> Callable[[Numbers], Encoded]:
    """A function of a TensorMap's (shape, strides, box), some of which may be open: the encodings
    for them. Encodings of equal layouts are shared."""
    assert tensors[map].align >= 16 and device.index is not None  # `Tensors` checks the alignment
    name, index, packed = map.tensor, device.index, packer(map)
    return lru_cache(MOST)(lambda numbers: Encoded(name, packed(numbers), index))


def packer(map: TensorMap) -> Callable[[Numbers], bytes]:
    """A function of a TensorMap's (shape, strides, box): launcher.c's Layout."""
    n, most = len(map.shape), MOST_DIMENSIONS
    fields = f"={n}Q{8 * (most - n)}x{n - 1}Q{8 * (most - n + 1)}x{2 * f'{n}I{4 * (most - n)}x'}"
    pack = struct.Struct(f"{fields}2i2I").pack
    facts = *(1,) * n, _DTYPES[map.dtype], _SWIZZLES[map.swizzle], n, 0

    def packed(numbers: Numbers) -> bytes:
        shape, strides, box = numbers
        return pack(*shape, *strides, *box, *facts)

    return packed


class Encoded(dict[int, bytes]):
    """The encodings of one TensorMap by the tensor's address. A call with a known address costs
    only a lookup, and PyTorch's allocator returns the same addresses again and again.

    Raises:
        ToolchainError: on lookup, if the driver rejects the map or the address.
    """

    def __init__(self, name: str, layout: bytes, index: int):
        super().__init__()
        self.name, self.layout, self.index = name, layout, index

    def __missing__(self, address: int) -> bytes:
        tensor_map = driver.launchers().encode(driver.context(self.index), address, self.layout)
        if isinstance(tensor_map, int):
            driver.check(tensor_map, f"encoding a tensor map of {self.name} at {address:#x}")
        if len(self) >= MOST:
            self.clear()
        self[address] = tensor_map
        return tensor_map
