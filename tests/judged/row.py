"""A Triton softmax as a user writes one."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_row(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    v = tl.load(x + row + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row + at, e / tl.sum(e, 0), mask=at < n)


def softmax(x):
    if not x.numel():
        raise ValueError("x: is empty")
    x = x.contiguous()
    y, n = torch.empty_like(x), x.shape[-1]
    softmax_row[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=4)
    return y
