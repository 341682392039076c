"""How rows are laid over blocks: what plans and heuristics both compute."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.contract import TensorSpec, rows_view
from kernelwright.contract.arithmetic import next_power_of_2

#: The C++ type whose order an element has.
CTYPE = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.int64: "long long",
    torch.int32: "int",
    torch.int16: "short",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.bool: "unsigned char",
}


class Rows(NamedTuple):
    """The rows of a call: `stride` elements from one to the next in the input."""

    rows: int
    n: int
    stride: int


def rows_of(x: TensorSpec) -> Rows:
    return Rows(*rows_view(x.shape, x.strides))


class Network(NamedTuple):
    """A bitonic network over `size` elements a row; a block has `rows` of them and `shared` bytes
    of entries, an order and a place each."""

    size: int
    rows: int
    shared: int


def network_of(x: TensorSpec, block: int) -> Network:
    size = next_power_of_2(max(rows_of(x).n, 2))
    count = max(size, 2 * block)
    return Network(size, count // size, count * (16 if x.itemsize == 8 else 8))
