"""A program per row, tile by tile, by Triton's own scan.

Idea: tl.cumsum scans a tile in float64; the program iterates over its row and carries the total.
Traffic: x read once, y written once.
Compared with the CUDA rungs: shuffles and the exchange are left to the compiler.
Limit: one program per row, as in `cuda_block`.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import next_power_of_2

from .tiling import rows_of


@triton.jit
def scan_row(
    x_ptr,
    y_ptr,
    n,
    x_stride,
    EXCLUSIVE: tl.constexpr,
    REVERSE: tl.constexpr,
    TILE: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * n
    carried = tl.zeros((), dtype=WIDE)
    for first in range(0, n, TILE):
        p = first + tl.arange(0, TILE)
        i = p
        if REVERSE:
            i = n - 1 - p
        x = tl.load(x_ptr + i, mask=p < n, other=0).to(WIDE)
        y = x
        if EXCLUSIVE:  # the total one position before, within the tile
            before = i - 1
            if REVERSE:
                before = i + 1
            y = tl.load(x_ptr + before, mask=(p > first) & (p < n), other=0).to(WIDE)
        sums = carried + tl.cumsum(y, 0)
        tl.store(y_ptr + i, sums.to(y_ptr.dtype.element_ty), mask=p < n)
        carried += tl.sum(x, 0)


def plan(gpu, config, x, starts, dim, exclusive=False, reverse=False):
    return _plan(config, "x", "y", x, exclusive, reverse)


def plan_backward(gpu, config, gy, starts, dim, exclusive=False, reverse=False):
    return _plan(config, "gy", "gx", gy, exclusive, not reverse)


def _plan(config, source, result, x, exclusive, reverse):
    r = rows_of(x)
    constants = {
        "EXCLUSIVE": exclusive,
        "REVERSE": reverse,
        "TILE": min(config["tile"], next_power_of_2(r.n)),
        "WIDE": tl.int64 if x.dtype == torch.int64 else tl.float64,
    }
    launch = Launch(
        TritonKernel(scan_row, constants, num_warps=config["num_warps"]),
        grid=(r.rows, 1, 1),
        args=(source, result, i64(r.n), i64(r.strides[0])),
    )
    return Plan((launch,))
