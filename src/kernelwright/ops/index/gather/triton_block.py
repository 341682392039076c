"""A block of the result per program.

Idea: a program computes the positions of its elements, reads their indices, then the selected
elements.
Traffic: as `cuda_thread`.
Compared with `cuda_thread`: a thread has several elements in flight, depending on the tile.
Limit: divisions for each element; the compiler does not know that adjacent elements share a row.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.target import require

from .heuristics import stride_of


@triton.jit
def gather_block(
    x_ptr, index_ptr, y_ptr, count, n, m, columns, stride, index_stride, TILE: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = i < count
    row, column = i // columns, i % columns
    number = tl.load(index_ptr + row * index_stride + column, mask=inside, other=0).to(tl.int64)
    require(tl.min(((number >= 0) & (number < n)).to(tl.int32)) > 0)
    of = row // m * n + number
    tl.store(y_ptr + i, tl.load(x_ptr + of * stride + column, mask=inside), mask=inside)


def plan(gpu, config, x, index, n):
    m, columns = index.shape[-2:]
    sizes = (index.numel(), n, m, columns, stride_of(x), stride_of(index))
    launch = Launch(
        TritonKernel(gather_block, {"TILE": config["tile"]}, num_warps=config["num_warps"]),
        grid=(cdiv(index.numel(), config["tile"]), 1, 1),
        args=("x", "index", "y", *map(i64, sizes)),
    )
    return Plan((launch,))
