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
_LAYOUT = struct.Struct("10Q10I2i2I")  # launcher.c's Layout


def encoder(
    map: TensorMap, tensors: Tensors, device: torch.device
) -> Callable[[tuple[tuple[int, ...], ...]], Encoded]:
    """A function of a TensorMap's (shape, strides, box), some of which may be open: the encodings
    for them. Encodings of equal layouts are shared."""
    assert tensors[map].align >= 16 and device.index is not None  # `Tensors` checks the alignment
    index = device.index
    return lru_cache(MOST)(lambda layout: Encoded(map, layout, index))


class Encoded(dict[int, bytes]):
    """The encodings of one TensorMap by the tensor's address. A call with a known address costs
    only a lookup, and PyTorch's allocator returns the same addresses again and again.

    Raises:
        ToolchainError: on lookup, if the driver rejects the map or the address.
    """

    def __init__(self, map: TensorMap, layout: tuple[tuple[int, ...], ...], index: int):
        super().__init__()
        self.name, self.index = map.tensor, index
        shape, strides, box = layout
        numbers = *_five(shape), *_five(strides), *_five(box), *_five((1,) * len(shape))
        self.layout = _LAYOUT.pack(*numbers, _DTYPES[map.dtype], _SWIZZLES[map.swizzle],
                                   len(shape), 0)  # fmt: skip

    def __missing__(self, address: int) -> bytes:
        made = driver.launchers().encode(driver.context(self.index), address, self.layout)
        if isinstance(made, int):
            driver.check(made, f"encoding a tensor map of {self.name} at {address:#x}")
        if len(self) >= MOST:
            self.clear()
        self[address] = made
        return made


def _five(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, *[0] * (MOST_DIMENSIONS - len(numbers)))
