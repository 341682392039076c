"""Two operands that broadcast, in the form that kernels take: rows and columns of the result, and
how each operand repeats along them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class Along:
    """How an operand repeats. `kind`: "kFlat": it has an element for each of the result's; "kRow":
    a row, `stride` elements after the previous row (0: one row for all rows); "kElement": one
    element for a whole row, `stride` elements after that of the previous row."""

    kind: str
    stride: int


@dataclass(frozen=True)
class Broadcast:
    """A contiguous result of `rows` by `cols` elements, and its operands."""

    rows: int
    cols: int
    operands: tuple[Along, Along]


def broadcast(x, other) -> Broadcast | str:
    """The Broadcast of two specs, or why kernels do not support it."""
    if x.shape == other.shape:
        return "x and other have the same shape: nothing is broadcast"
    dims = _merged(x, other)
    if len(dims) > 2:
        return f"x {x.shape} and other {other.shape} do not broadcast by rows and columns alone"
    (rows, *by_row), (cols, *by_col) = dims if len(dims) == 2 else [(1, 0, 0), *dims]
    if cols >= 2**31:
        return f"a row of {cols} elements exceeds 32-bit indices"
    operands = []
    for name, down, right in zip(("x", "other"), by_row, by_col, strict=True):
        if right > 1:
            return f"{name}: its last dimension has a stride of {right}"
        flat = right == 1 and (rows == 1 or down == cols)
        operands.append(Along("kFlat" if flat else ("kElement", "kRow")[right], down))
    return Broadcast(rows, cols, tuple(operands))


def _merged(x, other) -> list[tuple[int, int, int]]:
    """(size, stride of x, stride of other) of the result's dimensions from the outermost to the
    innermost, with a stride of 0 where an operand repeats; adjacent dimensions that both operands
    traverse as one are merged."""
    both = zip_longest(*(zip(t.shape[::-1], t.stride()[::-1], strict=True) for t in (x, other)),
                       fillvalue=(1, 0))  # fmt: skip
    dims: list[tuple[int, int, int]] = []
    for (m, a), (n, b) in both:
        size, a, b = max(m, n), a * (m > 1), b * (n > 1)
        if size == 1:
            continue
        if dims and (a, b) == tuple(s * dims[0][0] for s in dims[0][1:]):
            dims[0] = (dims[0][0] * size, *dims[0][1:])
        else:
            dims.insert(0, (size, a, b))
    return dims or [(1, 1, 1)]
