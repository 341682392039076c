"""Square tiles in shared memory, in Python.

Idea: `cuda_shared` in a form that a simulator without a GPU can run: a block copies a tile of a and
one of b to shared memory, multiplies them there, and proceeds along k.
Traffic: each element of a and b is read from global memory by n / TILE and m / TILE blocks.
Compared with `manual`: the products are not written to memory.
Limit: float32, contiguous rows, and two loads from shared memory per multiply-add.
"""

from numba import cuda, float32

from kernelwright.contract import Launch, NumbaKernel, Plan, i64
from kernelwright.contract.arithmetic import cdiv

TILE = 8


def matmul_tile(a, b, c, m, n, k, lda, ldb):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE + x

    total = float32(0.0)
    for first in range(0, k, TILE):
        a_tile[y, x] = a[row * lda + first + x] if row < m and first + x < k else 0.0
        b_tile[y, x] = b[(first + y) * ldb + col] if col < n and first + y < k else 0.0
        cuda.syncthreads()
        for i in range(TILE):
            total += a_tile[y, i] * b_tile[i, x]
        cuda.syncthreads()
    if row < m and col < n:
        c[row * n + col] = total


def plan(gpu, config, a, b, tf32=False):
    (m, k), n = a.shape, b.shape[1]
    args = ("a", "b", "c", i64(m), i64(n), i64(k), i64(a.stride(0)), i64(b.stride(0)))
    grid = (cdiv(n, TILE), cdiv(m, TILE), 1)
    return Plan((Launch(NumbaKernel(matmul_tile), grid, args, (TILE, TILE, 1)),))
