"""Layouts: functions from coordinates to offsets, given by a shape and a stride.

The definitions are those of CuTe (NVIDIA CUTLASS, "CuTe Layout Algebra"), with its order of
coordinates: the first mode changes fastest. A mode is a pair of a size and a stride, or a tuple of
modes. docs: "Layouts as algebra" explains each operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from kernelwright.support.errors import UsageError

CHECKED = 1 << 14  # coordinates of a composition that are compared with its definition
Nested: TypeAlias = "int | tuple[Nested, ...]"


@dataclass(frozen=True)
class Layout:
    """`shape` and `stride` are integers or tuples of the same structure."""

    shape: Nested
    stride: Nested

    def __post_init__(self):
        _congruent(self.shape, self.stride)
        if any(s < 1 for s in flat(self.shape)) or any(d < 0 for d in flat(self.stride)):
            raise UsageError(f"{self}: sizes must be positive, and strides must not be negative")

    def __call__(self, coordinate: int | tuple[int, ...]) -> int:
        """The offset of a coordinate: one integer, or one for each mode of the first level."""
        if isinstance(coordinate, tuple):
            parts = zip(modes(self), coordinate, strict=True)
            return sum(mode(i) for mode, i in parts)
        offset = 0
        for size, stride in self.pairs:
            offset += coordinate % size * stride
            coordinate //= size
        return offset

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of each mode, without the structure."""
        return tuple(zip(flat(self.shape), flat(self.stride), strict=True))

    def __str__(self) -> str:
        return f"{_written(self.shape)}:{_written(self.stride)}"


@dataclass(frozen=True)
class Swizzle:
    """XORs `bits` bits of an offset, from bit `base` on, with those `shift` bits higher."""

    bits: int
    base: int
    shift: int

    def __post_init__(self):
        if self.shift < self.bits:
            raise UsageError(f"{self}: the shift must be at least the number of bits")

    def __call__(self, offset: int) -> int:
        mask = (1 << self.bits) - 1 << self.base
        return offset ^ offset >> self.shift & mask

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True)
class Swizzled:
    """A layout whose offsets are swizzled."""

    swizzle: Swizzle
    layout: Layout

    @property
    def shape(self) -> Nested:
        return self.layout.shape

    def __call__(self, coordinate: int | tuple[int, ...]) -> int:
        return self.swizzle(self.layout(coordinate))

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.layout}"


def flat(nested: Nested) -> tuple[int, ...]:
    return (nested,) if isinstance(nested, int) else tuple(x for part in nested for x in flat(part))


def modes(of: Layout) -> tuple[Layout, ...]:
    """The modes of the first level."""
    if isinstance(of.shape, int) or isinstance(of.stride, int):
        return (of,)
    return tuple(Layout(s, d) for s, d in zip(of.shape, of.stride, strict=True))


def joined(*parts: Layout) -> Layout:
    """A layout of which each part is a mode."""
    return Layout(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


def size(of: Layout | Swizzled) -> int:
    """How many coordinates there are."""
    return prod(flat(of.shape))


def cosize(of: Layout) -> int:
    """One more than the largest offset."""
    return 1 + sum((s - 1) * d for s, d in of.pairs)


def coalesce(of: Layout) -> Layout:
    """The same function of an integer, with as few modes as possible."""
    kept: list[tuple[int, int]] = []
    for s, d in of.pairs:
        if s == 1:
            continue
        if kept and d == kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0] * s, kept[-1][1])
        else:
            kept.append((s, d))
    return _of(kept)


def composition(a: Layout, b: Layout) -> Layout:
    """i -> a(b(i)), with the shape of b.

    Raises:
        UsageError: sizes and strides do not divide each other, or the offsets of two modes of b
            carry into the same mode of a, so that this is no layout.
    """
    composed = _composition(a, b)
    n = size(a)
    for i in range(min(size(b), CHECKED)):
        if b(i) < n and composed(i) != a(b(i)):
            raise UsageError(
                f"{a} o {b}: no layout is this function: the modes of {b} overlap in {a}"
            )
    return composed


def _composition(a: Layout, b: Layout) -> Layout:
    """Mode by mode, as if the modes of b did not overlap."""
    if not isinstance(b.shape, int) or not isinstance(b.stride, int):
        return joined(*(_composition(a, mode) for mode in modes(b)))
    if b.stride == 0 or b.shape == 1:
        return Layout(b.shape, 0)
    return _of(_kept(_skipped(list(coalesce(a).pairs), b.stride, a, b), b.shape, a, b))


def _skipped(pairs: list[tuple[int, int]], step: int, a: Layout, b: Layout):
    """The modes of every `step`-th element; the last mode has no end."""
    out: list[tuple[int, int]] = []
    for s, d in pairs[:-1]:
        if step % s == 0:
            step //= s
        elif s % step == 0:
            out.append((s // step, d * step))
            step = 1
        else:
            raise UsageError(f"{a} o {b}: stride {step} and size {s} do not divide each other")
    s, d = pairs[-1]
    return [*out, (max(s // step, 1), d * step)]


def _kept(pairs: list[tuple[int, int]], n: int, a: Layout, b: Layout) -> list[tuple[int, int]]:
    """The modes of the first n elements."""
    out: list[tuple[int, int]] = []
    for s, d in pairs[:-1]:
        if n % s != 0 and s % n != 0:
            raise UsageError(f"{a} o {b}: size {n} and size {s} do not divide each other")
        out.append((min(s, n), d))
        n = max(n // s, 1)
    return [pair for pair in (*out, (n, pairs[-1][1])) if pair[0] > 1]


def complement(of: Layout, n: int) -> Layout:
    """Strides by which copies of the layout fill all offsets below n, without overlap.

    Raises:
        UsageError: the layout itself overlaps, or its strides do not divide each other.
    """
    out: list[tuple[int, int]] = []
    filled = 1
    for s, d in sorted((p for p in of.pairs if p[0] > 1), key=lambda p: p[1]):
        if d == 0 or d % filled:
            raise UsageError(f"complement of {of}: its offsets overlap or leave no regular gap")
        out.append((d // filled, filled))
        filled = s * d
    return coalesce(_of([*out, (-(-n // filled), filled)]))


def divide(a: Layout, b: Layout) -> Layout:
    """((elements of a tile), (tiles)): the tile b, and where its copies are, as elements of a."""
    return composition(a, joined(b, complement(b, size(a))))


def product(a: Layout, b: Layout) -> Layout:
    """((a), (copies)): copies of a, arranged as b."""
    return joined(a, composition(complement(a, size(a) * cosize(b)), b))


def offsets(of: Layout | Swizzled) -> list[list[int]]:
    """Offsets by row and column: the first mode is the row, the others together the column."""
    shape = of.shape
    rows = prod(flat(shape if isinstance(shape, int) else shape[0]))
    columns = size(of) // rows
    return [[of(r + rows * c) for c in range(columns)] for r in range(rows)]


def _of(pairs: list[tuple[int, int]]) -> Layout:
    if not pairs:
        return Layout(1, 0)
    if len(pairs) == 1:
        return Layout(*pairs[0])
    return Layout(tuple(s for s, _ in pairs), tuple(d for _, d in pairs))


def _congruent(shape: Nested, stride: Nested) -> None:
    if isinstance(shape, int) and isinstance(stride, int):
        return
    if isinstance(shape, int) or isinstance(stride, int) or len(shape) != len(stride):
        raise UsageError(f"{_written(shape)}:{_written(stride)}: each size needs one stride")
    for s, d in zip(shape, stride, strict=True):
        _congruent(s, d)


def _written(nested: Nested) -> str:
    return str(nested) if isinstance(nested, int) else f"({','.join(map(_written, nested))})"
