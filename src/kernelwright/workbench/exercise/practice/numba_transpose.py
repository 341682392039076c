"""A tile of 8 x 8 elements through shared memory.

Idea: a block reads along rows of x and writes along rows of y; in between, the tile is written by
rows and read by columns, which costs no global memory.
Traffic: x read and y written once.
Limit: tiles of 8 x 8 threads are small, for the simulator's sake; a GPU would take 32 x 32.
"""

from numba import cuda, float32

from kernelwright.contract import Launch, NumbaKernel, Plan, i64
from kernelwright.contract.arithmetic import cdiv

SIDE = 8


def transpose(x, y, rows, columns):
    tile = cuda.shared.array((SIDE, SIDE + 1), float32)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = cuda.blockIdx.x * SIDE, cuda.blockIdx.y * SIDE
    if top + down < rows and left + across < columns:
        tile[down, across] = x[(top + down) * columns + left + across]
    cuda.syncthreads()
    if left + down < columns and top + across < rows:
        y[(left + down) * rows + top + across] = tile[across, down]


def plan(gpu, config, x):
    rows, columns = x.shape
    grid = cdiv(columns, SIDE), cdiv(rows, SIDE), 1
    args = "x", "y", i64(rows), i64(columns)
    return Plan((Launch(NumbaKernel(transpose), grid, args, (SIDE, SIDE, 1)),))
