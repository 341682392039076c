"""The memory layout of a padding: dimensions that can be traversed as one are merged."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.contract import TensorSpec

from .spec import amounts

MOST = 4  # dimensions that kernels support


class Dim(NamedTuple):
    """A dimension: elements of y, of x, before x in y, and the distance of two elements in x."""

    size: int
    inside: int
    before: int
    stride: int


def walk(x: TensorSpec, pad: tuple[int, ...]) -> tuple[Dim, ...]:
    """The dimensions, outermost first. A dimension that is not padded is merged with the dimension
    around it if the strides of x allow it."""
    merged: list[Dim] = []
    for n, stride, (before, after) in zip(x.shape, x.strides, amounts(x.ndim, pad), strict=True):
        whole = before == after == 0
        if whole and n == 1:
            continue
        around = merged[-1] if merged else None
        if around and whole and (around.stride == n * stride or around.inside == 1):
            merged[-1] = Dim(*(part * n for part in around[:3]), stride)
        else:
            merged.append(Dim(n + before + after, n, before, stride))
    return tuple(merged) or (Dim(1, 1, 0, 1),)
