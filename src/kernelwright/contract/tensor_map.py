"""Tensor maps: descriptions of tensors for Hopper's Tensor Memory Accelerator (TMA), as data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

MOST_DIMENSIONS, LONGEST_BOX, SWIZZLES = 5, 256, (0, 32, 64, 128)
MOST_ELEMENTS, MOST_STRIDE = 2**32, 2**40  # elements of a dimension; bytes between them
DTYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
)


@dataclass(frozen=True)
class TensorMap:
    """A kernel argument that describes a tensor to the TMA, a CUtensorMap. The kernel takes it as
    `const __grid_constant__ kw::TensorMap`, and copies boxes of the tensor to and from shared
    memory. The part of a box outside the tensor is read as zeros, and is not stored.

    Attributes:
        tensor: name of the tensor, as in `Launch.args`. It begins at a multiple of 16 bytes.
        dtype: of its elements.
        shape: elements of each dimension, the contiguous one first; 1 to 5 dimensions.
        strides: bytes from one element to the next of each dimension but the first, multiples
            of 16.
        box: elements of each dimension that one copy moves, up to 256; those of the first are a
            multiple of 16 bytes.
        swizzle: 32, 64 or 128: within this many bytes of shared memory, 16-byte units are permuted
            by their row, so that a column of a box lies in different banks; 0 for none. The first
            dimension of the box must not be longer.

    Raises:
        ValueError: naming the attribute and the rule of the hardware that it breaks.
    """

    tensor: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128

    def __post_init__(self):
        reason = _refusal(self)
        if reason:
            raise ValueError(f"tensor map of {self.tensor}: {reason}")

    @property
    def nbytes(self) -> int:
        """From the tensor's first byte to its last."""
        last = sum((n - 1) * s for n, s in zip(self.shape[1:], self.strides, strict=True))
        return last + self.shape[0] * self.dtype.itemsize


def _refusal(t: TensorMap) -> str | None:
    """Which rule of the TMA a tensor map breaks, or None."""
    if t.dtype not in DTYPES:
        return f"dtype {t.dtype} is none that the copy engine knows"
    dimensions = len(t.shape)
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        return f"shape {t.shape} has {dimensions} dimensions, must have 1 to {MOST_DIMENSIONS}"
    if len(t.strides) != dimensions - 1 or len(t.box) != dimensions:
        return (
            f"{dimensions} dimensions need {dimensions - 1} strides and a box of {dimensions}, "
            f"given {len(t.strides)} and {len(t.box)}"
        )
    for n in t.shape:
        if not 1 <= n <= MOST_ELEMENTS:
            return f"shape {t.shape} has a dimension of {n}, must be 1 to 2**32"
    for s in t.strides:
        if not 0 < s < MOST_STRIDE or s % 16:
            return f"stride {s} must be a positive multiple of 16 bytes, below 2**40"
    for n in t.box:
        if not 1 <= n <= LONGEST_BOX:
            return f"box {t.box} has a dimension of {n}, must be 1 to {LONGEST_BOX}"
    inner = t.box[0] * t.dtype.itemsize
    if inner % 16:
        return f"box {t.box} begins with {inner} bytes, must be a multiple of 16"
    if t.swizzle not in SWIZZLES:
        return f"swizzle {t.swizzle} must be 0, 32, 64 or 128 bytes"
    if t.swizzle and inner > t.swizzle:
        return f"box {t.box} begins with {inner} bytes, more than a swizzle of {t.swizzle} holds"
    return None
