"""The memory layout of a sum: dimensions that can be traversed as one are merged."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.contract import TensorSpec, contiguous_strides


@dataclass(frozen=True)
class Reduction:
    """y[o, i] = sum over k < n of x[o * x_outer + k * x_n + i], for o < outer and i < inner.

    Strides count elements; `inner` is contiguous in x. The result is stored at y[o * y_outer + i *
    y_inner].
    """

    n: int
    x_n: int
    outer: int = 1
    x_outer: int = 0
    y_outer: int = 0
    inner: int = 1
    y_inner: int = 0

    @property
    def kind(self) -> str:
        """ "whole" (all elements to one number), "rows" (contiguous rows), or "columns"."""
        if self.inner > 1 or self.x_n != 1:
            return "columns"
        return "whole" if self.outer == 1 else "rows"


def reduction(x: TensorSpec, dim: tuple[int, ...]) -> Reduction | None:
    """The sum over `dim` (negative) as a Reduction; None if the dimensions do not merge to one
    summed dimension and at most one outer and one inner kept dimension."""
    kept_shape = tuple(s for i, s in enumerate(x.shape) if i - x.ndim not in dim)
    y_strides = iter(contiguous_strides(kept_shape))
    summed, kept = [], []
    for i, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
        into = summed if i - x.ndim in dim else kept
        y_stride = 0 if into is summed else next(y_strides)
        if size > 1:
            into.append((size, stride, y_stride))
    summed, kept = _merge(summed), _merge(kept)
    if len(summed) > 1:
        return None
    n, x_n, _ = summed[0] if summed else (1, 1, 0)
    inner = next((k for k in kept if k[1] == 1 and (x_n != 1 or n == 1)), None)
    outer = [k for k in kept if k is not inner]
    if len(outer) > 1:
        return None
    r = {"n": n, "x_n": x_n}
    if outer:
        r["outer"], r["x_outer"], r["y_outer"] = outer[0]
    if inner:
        r["inner"], _, r["y_inner"] = inner
    return Reduction(**r)


def _merge(dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merges dimensions (size, x stride, y stride), ordered by stride, with their neighbors where
    both strides allow it."""
    merged: list[tuple[int, int, int]] = []
    for size, xs, ys in sorted(dims, key=lambda d: -d[1]):
        if merged and merged[-1][1:] == (size * xs, size * ys):
            merged[-1] = (merged[-1][0] * size, xs, ys)
        else:
            merged.append((size, xs, ys))
    return merged
