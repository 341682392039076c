"""Tensor maps as passed to a launch: 128 bytes that the driver encodes from a `TensorMap` and an
address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from kernelwright.contract import TensorMap
from kernelwright.contract.open_size import OpenSize

from . import driver
from .build import Tensors
from .compiled import TENSOR_MAP_BYTES

MOST = 1024  # of one argument that are kept

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
_NO_INTERLEAVE, _PROMOTE_TO_256_BYTES, _ZEROS_OUTSIDE = 0, 3, 0


def encoder(
    map: TensorMap, tensors: Tensors, device: torch.device
) -> Callable[[tuple[tuple[int, ...], ...]], Encoded]:
    """The encodings of a TensorMap for its (shape, strides, box), of which some may be open. Those
    that are not are kept."""
    assert tensors[map].align >= 16 and device.index is not None  # what looking it up checks
    index = device.index
    layout = (map.shape, map.strides, map.box)
    if any(isinstance(n, OpenSize) for numbers in layout for n in numbers):
        return lambda layout: Encoded(map, layout, index)
    known = Encoded(map, layout, index)
    return lambda _: known


class Encoded(dict[int, bytes]):
    """The encodings of one TensorMap by the tensor's address. A call with a known address costs
    only a look-up, and PyTorch's allocator keeps returning the same addresses.

    Raises:
        ToolchainError: on look-up, if the driver rejects the map or the address.
    """

    def __init__(self, map: TensorMap, layout: tuple[tuple[int, ...], ...], index: int):
        super().__init__()
        self.map, self.index = map, index
        shape, strides, box = layout
        wide, narrow = ctypes.c_uint64 * len(shape), ctypes.c_uint32 * len(shape)
        self.layout = (
            wide(*shape),
            wide(*strides, 0),  # of which the driver reads all but the last
            narrow(*box),
            narrow(*[1] * len(shape)),
        )

    def __missing__(self, address: int) -> bytes:
        m = self.map
        # the driver wants a place at a multiple of 64 bytes
        room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + 64)
        place = -(-ctypes.addressof(room) // 64) * 64
        with driver.current(self.index):
            code = driver.library().cuTensorMapEncodeTiled(
                place,
                _DTYPES[m.dtype],
                len(m.shape),
                address,
                *self.layout,
                _NO_INTERLEAVE,
                _SWIZZLES[m.swizzle],
                _PROMOTE_TO_256_BYTES,
                _ZEROS_OUTSIDE,
            )
        driver.check(code, f"encoding a tensor map of {m.tensor} at {address:#x}")
        if len(self) >= MOST:
            self.clear()
        self[address] = made = ctypes.string_at(place, TENSOR_MAP_BYTES)
        return made
