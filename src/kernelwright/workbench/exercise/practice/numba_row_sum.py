"""A block per row: a sum per thread in a register, then a tree in shared memory.

Idea: thread t adds elements t, t + THREADS, ...; then the first half of the threads adds the sums
of the second half to its own, again and again.
Traffic: x read once, one value written per row.
Limit: a barrier for every halving.
"""

from numba import cuda, float32

from kernelwright.contract import Launch, NumbaKernel, Plan, i64

THREADS = 32


def row_sum(x, y, columns):
    sums = cuda.shared.array(THREADS, float32)
    tid = cuda.threadIdx.x
    total = float32(0.0)
    for i in range(tid, columns, THREADS):
        total += x[cuda.blockIdx.x * columns + i]
    sums[tid] = total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if tid < half:
            sums[tid] += sums[tid + half]
        cuda.syncthreads()
        half //= 2
    if tid == 0:
        y[cuda.blockIdx.x] = sums[0]


def plan(gpu, config, x):
    rows, columns = x.shape
    args = "x", "y", i64(columns)
    return Plan((Launch(NumbaKernel(row_sum), (rows, 1, 1), args, (THREADS, 1, 1)),))
