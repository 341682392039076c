"""One block per row with a shared-memory tree, in Python.

Idea: the three loops of the formula, each divided among the threads of a block; after the first and
the second, maximum and sum are reduced in shared memory by repeated halving. This is `cuda_block`
without shuffles, which a simulator without a GPU can run.
Traffic: x read three times, y written once; neighboring threads read neighboring elements.
Compared with `manual`: one kernel instead of five.
Limit: float32 only, one barrier per halving step, one element per load.
"""

import math

import numpy as np
from numba import cuda, float32

from kernelwright.contract import Launch, NumbaKernel, Plan, i64

from .tiling import rows_of

THREADS = 128
LOWEST = np.float32(-math.inf)


def softmax_fwd_block(x, y, n_cols, x_stride):
    parts = cuda.shared.array(THREADS, float32)
    tid = cuda.threadIdx.x
    source, target = cuda.blockIdx.x * x_stride, cuda.blockIdx.x * n_cols

    top = LOWEST
    for i in range(tid, n_cols, THREADS):
        v = x[source + i]
        if v > top or v != v:  # NaN is kept: no number is greater
            top = v
    parts[tid] = top
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if tid < half:
            other = parts[tid + half]
            if other > parts[tid] or other != other:
                parts[tid] = other
        half //= 2
    cuda.syncthreads()
    top = parts[0]
    cuda.syncthreads()

    total = np.float32(0.0)
    for i in range(tid, n_cols, THREADS):
        total += math.exp(x[source + i] - top)
    parts[tid] = total
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if tid < half:
            parts[tid] += parts[tid + half]
        half //= 2
    cuda.syncthreads()
    total = parts[0]

    for i in range(tid, n_cols, THREADS):
        y[target + i] = math.exp(x[source + i] - top) / total


def softmax_bwd_block(gy, y, gx, n_cols, gy_stride, y_stride):
    parts = cuda.shared.array(THREADS, float32)
    tid = cuda.threadIdx.x
    g, p = cuda.blockIdx.x * gy_stride, cuda.blockIdx.x * y_stride
    target = cuda.blockIdx.x * n_cols

    total = np.float32(0.0)
    for i in range(tid, n_cols, THREADS):
        total += gy[g + i] * y[p + i]
    parts[tid] = total
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if tid < half:
            parts[tid] += parts[tid + half]
        half //= 2
    cuda.syncthreads()
    dot = parts[0]

    for i in range(tid, n_cols, THREADS):
        gx[target + i] = y[p + i] * (gy[g + i] - dot)


def plan(gpu, config, x, dim):
    return _plan(softmax_fwd_block, "y", x=x)


def plan_backward(gpu, config, gy, y, dim):
    return _plan(softmax_bwd_block, "gx", gy=gy, y=y)


def _plan(kernel, out, **ins):
    r = rows_of(*ins.values())
    args = (*ins, out, i64(r.cols), *map(i64, r.strides))
    return Plan((Launch(NumbaKernel(kernel), (r.rows, 1, 1), args, (THREADS, 1, 1)),))
