"""A tile per program: loaded along x, transposed by Triton, stored along y.

Idea: the program loads a square whose rows run along x, and stores it transposed; the compiler
chooses how the tile goes through shared memory.
Traffic: x read and y written once, in whole sectors.
Limit: the compiler's choice of layouts.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv


@triton.jit
def transpose(x_ptr, y_ptr, rows, columns, SIDE: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(0).to(tl.int64) * SIDE + tl.arange(0, SIDE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside)
    tl.store(y_ptr + column[:, None] * rows + row[None, :], tl.trans(x), mask=tl.trans(inside))


def plan(gpu, config, x):
    rows, columns = x.shape
    grid = cdiv(columns, 32), cdiv(rows, 32), 1
    kernel = TritonKernel(transpose, {"SIDE": 32})
    return Plan((Launch(kernel, grid, ("x", "y", i64(rows), i64(columns))),))
