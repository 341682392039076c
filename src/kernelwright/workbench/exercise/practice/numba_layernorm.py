"""A block per row: two sums over the block, then one pass that normalizes.

Idea: the mean first, then the mean of the squared differences from it: E[x^2] - mean^2 would cancel
where the mean is large. Each sum is a tree in shared memory.
Traffic: x read three times, y written once.
Limit: the reads after the first, and a barrier for every halving.
"""

import math

from numba import cuda, float32

from kernelwright.contract import Launch, NumbaKernel, Plan, f32, i64

THREADS = 32


def layernorm(x, weight, bias, y, columns, eps):
    parts = cuda.shared.array((2, THREADS), float32)
    tid, start = cuda.threadIdx.x, cuda.blockIdx.x * columns
    mean = float32(0.0)
    for turn in range(2):  # the mean, then the variance, each in its own part of shared memory
        total = float32(0.0)
        for i in range(tid, columns, THREADS):
            total += x[start + i] if turn == 0 else (x[start + i] - mean) ** 2
        parts[turn, tid] = total
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if tid < half:
                parts[turn, tid] += parts[turn, tid + half]
            cuda.syncthreads()
            half //= 2
        if turn == 0:
            mean = parts[0, 0] / columns
    scale = 1 / math.sqrt(parts[1, 0] / columns + eps)
    for i in range(tid, columns, THREADS):
        y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i]


def plan(gpu, config, x, weight, bias, eps):
    rows, columns = x.shape
    args = "x", "weight", "bias", "y", i64(columns), f32("eps")
    return Plan((Launch(NumbaKernel(layernorm), (rows, 1, 1), args, (THREADS, 1, 1)),))
