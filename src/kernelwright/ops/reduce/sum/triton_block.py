"""One tile at a time, by programs that share the rows.

Idea: a program iterates over its rows one tile at a time and keeps a running sum for every position
of the tile; one tl.sum at the end reduces them. A few long rows are split over several programs,
whose partial sums the same kernel adds in a second launch.
Traffic: x read once, and a few KiB.
Compared with the CUDA rungs: only the tile size is chosen; shuffles, vectors and unrolling are left
to the compiler.
Limit: two launches for a whole tensor, and no control over the number of loads in flight.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

from .tiling import reduction


@triton.jit
def sum_block(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    x_stride,
    y_stride,
    y_split,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ACC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    total = tl.zeros((ROWS, COLS), dtype=ACC)
    step = tl.num_programs(1).to(tl.int64) * COLS
    for start in range(tl.program_id(1).to(tl.int64) * COLS, n_cols, step):
        inside = (row < n_rows) & (start + col < n_cols)
        x = tl.load(x_ptr + row * x_stride + start + col, mask=inside, other=0.0)
        total += x.to(ACC)
    y = tl.sum(total, axis=1, keep_dims=True).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * y_stride + tl.program_id(1) * y_split, y, mask=row < n_rows)


def plan(gpu, config, x, dim, to=None):
    r = reduction(x, tuple(dim))
    cols = min(config["tile"], next_power_of_2(r.n))
    rows = min(config["tile"] // cols, next_power_of_2(r.outer))
    programs = cdiv(r.outer, rows)
    splits = max(1, min(cdiv(r.n, cols), 4 * gpu.sms // programs))
    if splits == 1:
        return Plan((_launch(config, x, "x", "y", r, r.n, r.x_outer, r.y_outer, rows, cols),))
    first = _launch(
        config, x, "x", "partials", r, r.n, r.x_outer, splits, rows, cols, splits=splits
    )
    cols = next_power_of_2(splits)
    rows = min(max(1, config["tile"] // cols), next_power_of_2(r.outer))
    second = _launch(config, x, "partials", "y", r, splits, splits, r.y_outer, rows, cols)
    accumulator = torch.float64 if x.dtype == torch.float64 else torch.float32
    partials = Scratch(TensorSpec.contiguous((r.outer, splits), accumulator))
    return Plan((first, second), {"partials": partials})


def _launch(config, x, source, target, r, n, x_stride, y_stride, rows, cols, splits=1):
    constants = {
        "ROWS": rows,
        "COLS": cols,
        "ACC": tl.float64 if x.dtype == torch.float64 else tl.float32,
    }
    return Launch(
        TritonKernel(sum_block, constants, num_warps=config["num_warps"]),
        grid=(cdiv(r.outer, rows), splits, 1),
        args=(
            *(source, target, i64(r.outer), i64(n), i64(x_stride), i64(y_stride)),
            i64(1 if splits > 1 else 0),
        ),
    )
