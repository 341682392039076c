"""Hopper's asynchronous instructions in rungs: wgmma, the tensor memory accelerator, mbarriers.

A rung issues them by asm statements in unmodified headers. `statements.translated` replaces those
of a preprocessed unit by C++ that calls the runtime:

    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
    { auto &&kw_0 = (address); auto &&kw_1 = (count); kw_mbarrier_init(kw_u(kw_0), kw_u(kw_1)); }

The runtime's parts are ../bulk.h, ../wgmma.h, ../matrices.h and ../cluster.h; the arithmetic of
tensor cores is in ../tensor_cores.cpp.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whole programs run without PyTorch
    from kernelwright.contract import Scalar, TensorMap

_HOPPER = re.compile(r"\b(?:wgmma\.|cp\.(?:reduce\.)?async\.bulk|setmaxnreg|tcgen05\.)")
_MARK = 0x70616D20726F736E
#: As CUtensorMapDataType counts them.
_TYPES = defaultdict(int) | {
    "int16": 1, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip


def needed(texts: Iterable[str]) -> bool:
    """Whether sources have asm statements that are translated."""
    return any(_HOPPER.search(t) for t in texts)


def address_range(map: TensorMap, value: Scalar) -> tuple[int, int]:
    """The addresses of the first byte of a map's tensor and after its last, of an argument."""
    assert isinstance(value.value, bytes)
    (start,) = struct.unpack_from("=Q", value.value, 8)
    return start, start + map.nbytes


def encoded(map: TensorMap, address: int) -> bytes:
    """runtime.h's TensorMap, in place of the 128 bytes that the driver makes for a GPU."""
    n = len(map.shape)
    strides = (*map.strides, *(0,) * (5 - n))
    last = (*(s - 1 for s in map.shape), *(0,) * (5 - n))
    box = (*map.box, *(1,) * (5 - n))
    rest = n, map.dtype.itemsize, map.swizzle, _TYPES[str(map.dtype).removeprefix("torch.")]
    return struct.pack("=QQ4Q5I5H5B4B41x", _MARK, address, *strides, *last, *box, *(1,) * 5, *rest)
