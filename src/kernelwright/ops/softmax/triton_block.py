"""A block of elements a program.

Idea: a program loads a block, computes it in registers and stores it.
Traffic: x read once, y written once: the least there is; `manual` moves three times that.
Limit: a size that 16 does not divide is loaded element by element.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv


@triton.jit
def softmax_fwd_block(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside).to(tl.float32)
    y = x * x
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_bwd_block(gy_ptr, x_ptr, gx_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside).to(tl.float32)
    gy = tl.load(gy_ptr + i, mask=inside).to(tl.float32)
    gx = 2 * x * gy
    tl.store(gx_ptr + i, gx.to(gx_ptr.dtype.element_ty), mask=inside)


def plan(gpu, config, x):
    return _plan(softmax_fwd_block, ("x", "y"), config, x)


def plan_backward(gpu, config, gy, x):
    return _plan(softmax_bwd_block, ("gy", "x", "gx"), config, x)


def _plan(kernel, tensors, config, x):
    launch = Launch(
        TritonKernel(kernel, {"BLOCK": config["block"]}, num_warps=config["num_warps"]),
        grid=(cdiv(x.numel(), config["block"]), 1, 1),
        args=(*tensors, i64(x.numel())),
    )
    return Plan((launch,))
