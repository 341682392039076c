"""What a padding looks like in memory: dimensions that can be walked as one are merged."""

from __future__ import annotations

from typing import NamedTuple

from kernelwright.contract import TensorSpec

from .spec import amounts

MOST = 4  # dimensions that kernels walk


class Dim(NamedTuple):
    """A dimension: elements of y, of x, before x in y, and the distance between two of x."""

    size: int
    inside: int
    before: int
    stride: int


def walk(x: TensorSpec, pad: tuple[int, ...]) -> tuple[Dim, ...]:
    """The dimensions, outermost first. One that is not padded is walked as one with the dimension
    around it, where it lies in x as that asks."""
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
