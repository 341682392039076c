"""How rows are distributed over blocks: shared by plans and heuristics."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.contract import TensorSpec, rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2


class Rows(NamedTuple):
    """The rows of a call in the form in which kernels address them: strides of the inputs in
    elements, and the number of elements that an access moves together."""

    rows: int
    n: int
    strides: tuple[int, ...]
    width: int


def rows_of(*inputs: TensorSpec, reverse: bool = False) -> Rows:
    """Rows along the last dimension. The width divides every distance between the vectors of two
    rows and, in reverse, the row itself. Flags, the bytes of `starts`, are read one by one."""
    views = [rows_view(t.shape, t.strides) for t in inputs]
    rows, n, _ = views[0]
    strides = tuple(v[2] for v in views)
    size = inputs[0].itemsize
    steps = [0]
    if rows > 1:
        steps += [n, strides[0]]
    if reverse:
        steps.append(n)
    width = 16 // size
    while any(s % width for s in steps) or inputs[0].align < width * size:
        width //= 2
    return Rows(rows, n, strides, width)


class Tiles(NamedTuple):
    """A row in `count` tiles of block * vecs vectors."""

    vecs: int
    block: int
    count: int


def tiles_of(r: Rows, config: dict) -> Tiles:
    """The config's tile; a smaller one if a row is shorter."""
    vectors = cdiv(r.n, r.width)
    block = min(config["block"], max(32, next_power_of_2(vectors)))
    vecs = min(config["vecs"], next_power_of_2(cdiv(vectors, block)))
    return Tiles(vecs, block, cdiv(r.n, r.width * vecs * block))


class Columns(NamedTuple):
    """A dimension with `inner` contiguous elements beside it: element k of scan (o, i) is at (o * n
    + k) * stride + i."""

    outer: int
    n: int
    inner: int


def columns_of(t: TensorSpec, dim: int) -> Columns:
    inner = 1
    for s in t.shape[dim + t.ndim + 1 :]:
        inner *= s
    n = t.shape[dim]
    return Columns(t.numel() // (n * inner), n, inner)
