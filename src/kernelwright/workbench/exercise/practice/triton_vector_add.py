"""A block of elements per program.

Idea: a program loads BLOCK elements of a and b, adds them and stores them; a mask keeps it from
accessing what lies beyond n.
Traffic: a and b read once, c written once; 16-byte accesses where n is a multiple of 4.
Limit: DRAM.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv


@triton.jit
def vector_add(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(a_ptr + i, mask=inside)
    b = tl.load(b_ptr + i, mask=inside)
    tl.store(c_ptr + i, a + b, mask=inside)


def plan(gpu, config, a, b):
    n = a.numel()
    kernel = TritonKernel(vector_add, {"BLOCK": 1024})
    return Plan((Launch(kernel, (cdiv(n, 1024), 1, 1), ("a", "b", "c", i64(n))),))
