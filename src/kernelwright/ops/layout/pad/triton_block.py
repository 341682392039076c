"""A block of the result per program.

Idea: a program computes the coordinates of its elements and loads those that are inside x; the
masked load returns the padding value for the others.
Traffic: as `cuda_naive`.
Compared with `cuda_naive`: a thread has several elements in flight, depending on the tile.
Limit: divisions for each element, and loads of single elements, because the compiler does not know
that adjacent elements of the result are adjacent in x.
"""

import math

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32, i64
from kernelwright.contract.arithmetic import cdiv

from .boxes import MOST, Dim, walk


@triton.jit
def _axis(at, size, within, before, stride):
    """(whether a coordinate of y is inside x, its position there)."""
    i = at % size - before
    return (i >= 0) & (i < within), i * stride


@triton.jit
def pad_block(
    x_ptr, y_ptr, count, value,
    size0, within0, before0, stride0, size1, within1, before1, stride1,
    size2, within2, before2, stride2, size3, within3, before3, stride3,
    TILE: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    in3, at3 = _axis(i, size3, within3, before3, stride3)
    in2, at2 = _axis(i // size3, size2, within2, before2, stride2)
    in1, at1 = _axis(i // (size3 * size2), size1, within1, before1, stride1)
    in0, at0 = _axis(i // (size3 * size2 * size1), size0, within0, before0, stride0)
    inside = (i < count) & in0 & in1 & in2 & in3
    x = tl.load(x_ptr + at0 + at1 + at2 + at3, mask=inside, other=0.0)
    y = tl.where(inside, x, value.to(y_ptr.dtype.element_ty))
    tl.store(y_ptr + i, y, mask=i < count)


def plan(gpu, config, x, pad, value=0.0):
    walked = walk(x, tuple(pad))
    count = math.prod(d.size for d in walked)
    dims = [Dim(1, 1, 0, 0)] * (MOST - len(walked)) + list(walked)
    launch = Launch(
        TritonKernel(pad_block, {"TILE": config["tile"]}, num_warps=config["num_warps"]),
        grid=(cdiv(count, config["tile"]), 1, 1),
        args=("x", "y", i64(count), f32("value"), *(i64(n) for d in dims for n in d)),
    )
    return Plan((launch,))
