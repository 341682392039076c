"""A block per row: Hillis and Steele's scan of a tile in shared memory, two buffers in turn.

Idea: step s adds to each element the one 2^s places before it. A step reads one buffer and writes
the other, so it needs one barrier. The total of each tile is carried to the next.
Traffic: x read once, y written once.
Limit: log2(THREADS) additions for each element where one would do.
"""

from numba import cuda, float32

from kernelwright.contract import Launch, NumbaKernel, Plan, i64

THREADS = 32


def prefix_sum(x, y, columns):
    sums = cuda.shared.array((2, THREADS), float32)
    tid = cuda.threadIdx.x
    start = cuda.blockIdx.x * columns
    carried = float32(0.0)
    now = 0
    for first in range(0, columns, THREADS):
        now = 1 - now  # the other buffer may still be read
        sums[now, tid] = x[start + first + tid] if first + tid < columns else 0.0
        cuda.syncthreads()
        step = 1
        while step < THREADS:
            total = sums[now, tid]
            if tid >= step:
                total += sums[now, tid - step]
            now = 1 - now
            sums[now, tid] = total
            cuda.syncthreads()
            step *= 2
        if first + tid < columns:
            y[start + first + tid] = carried + sums[now, tid]
        carried += sums[now, THREADS - 1]


def plan(gpu, config, x):
    rows, columns = x.shape
    args = "x", "y", i64(columns)
    return Plan((Launch(NumbaKernel(prefix_sum), (rows, 1, 1), args, (THREADS, 1, 1)),))
