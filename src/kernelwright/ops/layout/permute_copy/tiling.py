"""The memory layout of a permutation: dimensions that can be traversed as one are merged."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.contract import TensorSpec

from .spec import order_of

MOST_OUTER = 3  # dimensions around a tile that kernels support


class Dim(NamedTuple):
    """A dimension of the result: its size, and the distance of two elements in x and in y."""

    size: int
    x: int
    y: int


def walk(x: TensorSpec, dims: tuple[int, ...]) -> tuple[Dim, ...]:
    """The dimensions of the result, outermost first; neighbors that are contiguous in x are
    merged."""
    merged: list[list[int]] = []
    for d in order_of(x.ndim, dims):
        size, stride = x.shape[d], x.strides[d]
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = [merged[-1][0] * size, stride]
        else:
            merged.append([size, stride])
    step, walked = 1, []
    for size, stride in reversed(merged or [[1, 1]]):
        walked.append(Dim(size, stride, step))
        step *= size
    return tuple(reversed(walked))


class Tiles(NamedTuple):
    """Matrices to transpose: `column` is contiguous in x, `row` in y; `outer` are the other
    dimensions."""

    row: Dim
    column: Dim
    outer: tuple[Dim, ...]


def tiles(x: TensorSpec, dims: tuple[int, ...]) -> Tiles | None:
    """A permutation as transposed matrices; None if no dimension of the result except the last is
    contiguous in x, or if there are too many other dimensions."""
    *around, row = walk(x, tuple(dims))
    column = next((d for d in around if d.x == 1), None)
    if column is None or row.x == 1:
        return None
    outer = tuple(d for d in around if d is not column)
    return Tiles(row, column, outer) if len(outer) <= MOST_OUTER else None
