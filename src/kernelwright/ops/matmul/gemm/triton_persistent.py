"""One program per multiprocessor, each with many tiles.

Idea: as `triton_block`, with a loop over tiles around the loop along k. `flatten` merges them to
one loop, so that the copies of the next tile's first blocks start before the current tile is
stored.
Traffic: as `triton_block`.
Compared with `triton_block`: the pipeline is filled once instead of once per tile, and no program
waits for the launch of another.
Limit: as there, addresses and masks; tensor descriptors (TMA) would compute them in hardware.
"""

import triton
import triton.language as tl

from .triton_tile import finished, planned, planned_linear, sums_of, tile_of


@triton.jit
def product_persistent(
    a_ptr, b_ptr, c_ptr, bias_ptr, gate_ptr, residual_ptr, z_ptr,
    m, n, k, tiles, a_line, b_line, a_batch, b_batch,
    ACTIVATION: tl.constexpr, BIAS: tl.constexpr, GATE: tl.constexpr, RESIDUAL: tl.constexpr,
    KEEP: tl.constexpr, A_ALONG_K: tl.constexpr, B_ALONG_K: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        down, across, nth = tile_of(tile, m, n, ROWS, COLS)
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
    return planned(product_persistent, _staged(config, a), tf32, a, b, gpu.sms)


def plan_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    given = x, weight, bias, gate, residual, activation, keep
    return planned_linear(product_persistent, _staged(config, x), *given, tf32, gpu.sms)


def _staged(config, operand):
    """float32 results are stored through more shared memory than a stage needs, while the blocks of
    the next tile arrive: there is room for two stages."""
    return {**config, "stages": 2} if operand.itemsize == 4 else config
