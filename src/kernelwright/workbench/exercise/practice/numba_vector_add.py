"""One element per thread.

Idea: thread i of the grid adds elements i, if there are that many.
Traffic: a and b read once, c written once.
Limit: 4 bytes per access.
"""

from numba import cuda

from kernelwright.contract import Launch, NumbaKernel, Plan, i64
from kernelwright.contract.arithmetic import cdiv


def vector_add(a, b, c, n):
    i = cuda.grid(1)
    if i < n:
        c[i] = a[i] + b[i]


def plan(gpu, config, a, b):
    n = a.numel()
    args = "a", "b", "c", i64(n)
    return Plan((Launch(NumbaKernel(vector_add), (cdiv(n, 64), 1, 1), args, (64, 1, 1)),))
