"""The shared-memory tree in Python: a grid-stride loop, then halving, in Numba.

Idea: as `cuda_grid_stride` without unrolling: additions in a register first, then a tree in shared
memory. A second launch of the same kernel adds the sums of the blocks.
Traffic: x read once.
Compared with `cuda_grid_stride`: the same kernel in Python, without compiling C++.
Limit: one element per load, one barrier per halving, and no warp shuffles in the simulator.
"""

import math

import torch
from numba import cuda, float32, float64

from kernelwright.contract import Launch, NumbaKernel, Plan, Scratch, TensorSpec, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

MAX_BLOCK = 256
ITEMS = 32  # elements per thread, if the grid does not fill the GPU


def _kernel(dtype):
    def sum_block(x, y, n):
        shared = cuda.shared.array(MAX_BLOCK, dtype)
        tid = cuda.threadIdx.x
        total = dtype(0)
        for i in range(cuda.grid(1), n, cuda.gridsize(1)):
            total += x[i]
        shared[tid] = total
        cuda.syncthreads()
        half = cuda.blockDim.x // 2
        while half > 0:
            if tid < half:
                shared[tid] += shared[tid + half]
            cuda.syncthreads()
            half //= 2
        if tid == 0:
            y[cuda.blockIdx.x] = shared[0]

    return sum_block


KERNELS = {torch.float32: _kernel(float32), torch.float64: _kernel(float64)}


def plan(gpu, config, x, dim, to=None):
    n = math.prod(x.shape)
    blocks = min(cdiv(n, config["block"] * ITEMS), 8 * gpu.sms)
    first = _launch(config, x, "x", "y" if blocks == 1 else "partials", n, blocks)
    if blocks == 1:
        return Plan((first,))
    second = _launch(config, x, "partials", "y", blocks, 1)
    return Plan((first, second), {"partials": Scratch(TensorSpec.contiguous((blocks,), x.dtype))})


def _launch(config, x, source, target, n, blocks):
    block = min(config["block"], max(32, next_power_of_2(cdiv(n, ITEMS))))
    return Launch(
        NumbaKernel(KERNELS[x.dtype]),
        grid=(blocks, 1, 1),
        block=(block, 1, 1),
        args=(source, target, i64(n)),
    )
