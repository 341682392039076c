"""One tile per program: loaded along x, transposed by Triton, stored along y.

Idea: the program loads a square whose rows are along x's contiguous dimension, and stores it
transposed; the compiler moves it through shared memory and chooses its layout there.
Traffic: x read and y written once.
Compared with `cuda_padded`: a single expression; the layout is left to the compiler.
Limit: the compiler's choice of layouts; transposed matrices only.
"""

import math

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv

from .tiling import Dim, tiles


@triton.jit
def permute_tile(
    x_ptr, y_ptr, rows, row_stride, columns, column_stride, across, down,
    n0, x0, y0, n1, x1, y1, x2, y2, SIDE: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0).to(tl.int64)
    matrix = block // (across * down)
    i0, i1, i2 = matrix % n0, matrix // n0 % n1, matrix // n0 // n1
    x_ptr += i0 * x0 + i1 * x1 + i2 * x2
    y_ptr += i0 * y0 + i1 * y1 + i2 * y2
    row = (block // across) % down * SIDE + tl.arange(0, SIDE)
    column = block % across * SIDE + tl.arange(0, SIDE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * row_stride + column[None, :], mask=inside)
    y_at = y_ptr + column[:, None] * column_stride + row[None, :]
    tl.store(y_at, tl.trans(x), mask=tl.trans(inside))


def plan(gpu, config, x, dims):
    t = tiles(x, tuple(dims))
    side = config["side"]
    across, down = cdiv(t.column.size, side), cdiv(t.row.size, side)
    a, b, c = [*reversed(t.outer), *(Dim(1, 0, 0),) * 3][:3]
    launch = Launch(
        TritonKernel(permute_tile, {"SIDE": side}, num_warps=config["num_warps"]),
        grid=(across * down * math.prod(d.size for d in t.outer), 1, 1),
        args=(
            "x", "y",
            *map(i64, (t.row.size, t.row.x, t.column.size, t.column.y, across, down)),
            *map(i64, (*a, *b, c.x, c.y)),
        ),
    )  # fmt: skip
    return Plan((launch,))
