"""How rows are distributed over blocks: shared by plans and heuristics."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.contract import TensorSpec, rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

DIGITS = 256
SHORT = 2**30  # elements of a row whose counts leave room for flags in 32 bits

#: The C++ type that defines the order of a dtype.
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
    """The rows of a call, `stride` elements apart in the input."""

    rows: int
    n: int
    stride: int


def rows_of(x: TensorSpec) -> Rows:
    return Rows(*rows_view(x.shape, x.strides))


class Network(NamedTuple):
    """A bitonic network over `size` elements per row; a block has `rows` rows and `shared` bytes of
    entries, each of which is an order and a position."""

    size: int
    rows: int
    shared: int


def network_of(x: TensorSpec, block: int) -> Network:
    size = next_power_of_2(max(rows_of(x).n, 2))
    count = max(size, 2 * block)
    return Network(size, count // size, count * (16 if x.itemsize == 8 else 8))


class Tiles(NamedTuple):
    """A row in `count` tiles of `size` elements; a block sorts one in `shared` bytes."""

    size: int
    count: int
    shared: int


def tiles_of(x: TensorSpec, config: dict) -> Tiles:
    """`shared` is the size of Tile (tile.cuh)."""
    block = config["block"]
    size, warps = block * config["items"], block // 32
    head = cdiv(4 * (DIGITS + warps + 1), 8) * 8
    body = max(4 * DIGITS * warps, size * (x.itemsize + 4))
    return Tiles(size, cdiv(rows_of(x).n, size), head + body)
