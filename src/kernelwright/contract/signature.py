"""Specs: tensors without their data, on which selection and planning depend.

A `TensorSpec` has the same attributes and methods as a tensor (`shape`, `stride()`, `dtype`,
`numel()`), so `supports` and `plan` functions read like code on tensors, and run without a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TensorSpec:
    """Shape, strides (in elements), dtype, and `align`: the largest power of two up to 16 that
    divides the data pointer, in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    align: int = 16

    @staticmethod
    def of(t: torch.Tensor) -> TensorSpec:
        ptr = t.data_ptr()
        return TensorSpec(
            tuple(t.shape), tuple(t.stride()), t.dtype, 16 if ptr % 16 == 0 else ptr & -ptr
        )

    @staticmethod
    def contiguous(shape, dtype: torch.dtype) -> TensorSpec:
        """A fresh contiguous allocation."""
        return TensorSpec(tuple(shape), contiguous_strides(tuple(shape)), dtype)

    def stride(self, dim: int | None = None):
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.numel() * self.itemsize

    def is_contiguous(self) -> bool:
        return all(
            a == b or n <= 1
            for a, b, n in zip(
                self.strides, contiguous_strides(self.shape), self.shape, strict=True
            )
        )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if the elements fill one block of memory without gaps or overlap, in any order."""
    step = 1
    for s, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def rows_view(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(rows, columns, row stride) if the tensor is rows of a contiguous last dimension with
    one stride between rows, else None. A 0-d tensor is one row of one column."""
    if not shape:
        return 1, 1, 1
    cols = shape[-1]
    if cols > 1 and strides[-1] != 1:
        return None
    rows, row_stride, expect = 1, 0, None
    for n, s in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if n == 1:
            continue
        if expect is None:
            row_stride = s
        elif s != expect:
            return None
        expect = s * n
        rows *= n
    return rows, cols, row_stride if rows > 1 else cols
