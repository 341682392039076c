"""One tile of c per program.

Idea: `cuda_tuned` in 30 lines. A program multiplies blocks of a and b by tl.dot, which is compiled
to tensor core instructions for 16-bit types and tf32; the compiler copies the blocks of later steps
ahead, in as many stages as the config states.
Traffic: a and b once per row and column of tiles, mostly from L2; c written once.
Compared with `native`: any operand order, and in `linear` the whole epilogue in the same kernel.
Limit: addresses. Each load computes its addresses and masks; and for every tile the pipeline is
filled and drained.
"""

import triton
import triton.language as tl

from .triton_tile import finished, planned, planned_linear, sums_of, tile_of


@triton.jit
def product_block(
    a_ptr, b_ptr, c_ptr, bias_ptr, gate_ptr, residual_ptr, z_ptr,
    m, n, k, tiles, a_line, b_line, a_batch, b_batch,
    ACTIVATION: tl.constexpr, BIAS: tl.constexpr, GATE: tl.constexpr, RESIDUAL: tl.constexpr,
    KEEP: tl.constexpr, A_ALONG_K: tl.constexpr, B_ALONG_K: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    down, across, nth = tile_of(tl.program_id(0), m, n, ROWS, COLS)
    row, col = down * ROWS + tl.arange(0, ROWS), across * COLS + tl.arange(0, COLS)
    nth = nth.to(tl.int64)
    sums = sums_of(
        a_ptr + nth * a_batch, b_ptr + nth * b_batch, row, col, m, n, k, a_line, b_line,
        A_ALONG_K, B_ALONG_K, ROWS, COLS, DEPTH, PRECISION,
    )  # fmt: skip
    inside = (row[:, None] < m) & (col[None, :] < n)
    finished(
        sums, row, col, n, inside, c_ptr + nth * m * n, bias_ptr, gate_ptr, residual_ptr, z_ptr,
        ACTIVATION, BIAS, GATE, RESIDUAL, KEEP,
    )  # fmt: skip


def plan(gpu, config, a, b, tf32=False):
    return planned(product_block, config, tf32, a, b)


def plan_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    given = x, weight, bias, gate, residual, activation, keep
    return planned_linear(product_block, config, *given, tf32)
