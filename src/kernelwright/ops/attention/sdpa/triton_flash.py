"""FlashAttention-2's forward.

Idea: a program processes a block of queries of one head and iterates over blocks of keys. It keeps
the largest score and the sum of exponentials of each query, and rescales sum and result when a
larger score occurs (online softmax). Blocks that every query sees completely come first, without
masks; those at the diagonal and at the end follow. Exponentials are to base 2.
Traffic: q read and y written once; k and v once per block of queries, mostly from L2.
Compared with `cuda_staged`: scores and weights, L x S values per head, stay on the chip.
Limit: exponentials and products alternate; on Hopper, tensor cores are idle half of the time.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32, f64, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.dropout import tile_factors
from kernelwright.ops.attention._tiles import LN2, LOG2E, product, store, tile

from .call import Call
from .tiling import shape_of


@triton.jit
def masked(
    z, mask_ptr, row, col, rows, cols, mask_row, mask_col, EDGE: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Scores of queries `row` (n, 1) and keys `col` (1, n), with -inf for keys that a query does
    not see. EDGE: some keys may be outside, or after the query."""
    if MASK != 0:
        inside = (row < rows) & (col < cols)
        at = mask_ptr + row.to(tl.int64) * mask_row + col.to(tl.int64) * mask_col
        m = tl.load(at, mask=inside, other=0)
        if MASK == 1:
            z = tl.where(m != 0, z, float("-inf"))
        else:
            more = m.to(tl.float32)
            z = tl.where(more == float("-inf"), float("-inf"), z + more)
    if EDGE:
        z = tl.where(col < cols, z, float("-inf"))
        if CAUSAL:
            z = tl.where(col <= row, z, float("-inf"))
    return z


@triton.jit
def base2(difference, MASK: tl.constexpr):
    """A difference of scores to base 2. With a floating-point mask, scores are to base e until
    then: log2(e) times the lowest number, with which keys are masked, is -inf."""
    if MASK == 2:
        difference *= LOG2E
    return difference


@triton.jit
def walk(
    acc, top, total, q, k_ptr, v_ptr, mask_ptr, seed_ptr, k_row, v_row, mask_row, mask_col, row,
    head, first, last, length, s, factor, p,
    EDGE: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Processes keys `first` to `last`, and returns the updated result, largest score and sum of
    exponentials of each query."""
    for start in range(first, last, COLS):
        k = tile(k_ptr, k_row, start, s, K_COL, COLS, D, D2, EDGE)
        z = product(q, tl.trans(k)) * factor
        col = start + tl.arange(0, COLS)
        z = masked(z, mask_ptr, row[:, None], col[None, :], length, s, mask_row, mask_col,
                   EDGE, CAUSAL, MASK)  # fmt: skip
        higher = tl.maximum(top, tl.max(z, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        e = tl.exp2(base2(z - base[:, None], MASK))
        fade = tl.exp2(base2(top - base, MASK))
        total = total * fade + tl.sum(e, 1)
        acc = acc * fade[:, None]
        if DROP:
            at = (head * length + row.to(tl.int64))[:, None]
            e *= tile_factors(seed_ptr, seed_ptr, p, at, start, s, True, 1, WHOLE, COLS)
        v = tile(v_ptr, v_row, start, s, V_COL, COLS, DV, DV2, EDGE)
        acc += product(e.to(v.dtype), v)
        top = higher
    return acc, top, total


@triton.jit
def attention_fwd(
    q_ptr, k_ptr, v_ptr, mask_ptr, seed_ptr, y_ptr, lse_ptr,
    q_b, q_h, q_row, k_b, k_h, k_row, v_b, v_h, v_row, mask_b, mask_h, mask_row, mask_col,
    y_b, y_h, y_row, heads, group, length, s, scale, p,
    Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(length, ROWS)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    b, h = head // heads, head % heads
    start = (blocks - 1 - tl.program_id(0) % blocks) * ROWS  # blocks with most keys first
    row = start + tl.arange(0, ROWS)
    q = tile(q_ptr + b * q_b + h * q_h, q_row, start, length, Q_COL, ROWS, D, D2, True)
    k_ptr += b * k_b + h // group * k_h
    v_ptr += b * v_b + h // group * v_h
    mask_ptr += b * mask_b + h * mask_h
    factor = scale
    if MASK != 2:
        factor *= LOG2E

    last = s
    whole = s // COLS * COLS  # keys that need no masks
    if CAUSAL:
        last = tl.minimum(s, start + ROWS)
        whole = tl.minimum(whole, start // COLS * COLS)
    acc = tl.zeros((ROWS, DV2), tl.float32)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc, top, total = walk(
        acc, top, total, q, k_ptr, v_ptr, mask_ptr, seed_ptr, k_row, v_row, mask_row, mask_col,
        row, head, 0, whole, length, s, factor, p,
        False, K_COL, V_COL, CAUSAL, MASK, DROP, WHOLE, D, DV, D2, DV2, COLS,
    )  # fmt: skip
    acc, top, total = walk(
        acc, top, total, q, k_ptr, v_ptr, mask_ptr, seed_ptr, k_row, v_row, mask_row, mask_col,
        row, head, whole, last, length, s, factor, p,
        True, K_COL, V_COL, CAUSAL, MASK, DROP, WHOLE, D, DV, D2, DV2, COLS,
    )  # fmt: skip

    y = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    store(y, y_ptr + b * y_b + h * y_h, y_row, start, length, 1, ROWS, DV, DV2)
    at = head * length + row
    if MASK == 2:
        tl.store(lse_ptr + 2 * at, tl.where(total == total, top, total), mask=row < length)
        tl.store(lse_ptr + 2 * at + 1, total, mask=row < length)
    else:
        tl.store(lse_ptr + at, (top + tl.log2(total)) * LN2, mask=row < length)


def plan(gpu, config, **args):
    c = Call(args)
    shape = shape_of(gpu, config, c)
    kernel = TritonKernel(
        attention_fwd,
        {**c.columns("q", "k", "v"), **c.options, "ROWS": shape["rows"], "COLS": shape["cols"]},
        num_warps=shape["warps"],
        num_stages=shape["stages"],
    )
    pointers = ("q", "k", "v", c.pointer("mask"), c.pointer("seed"), "y", "lse")
    sizes = (*map(i32, (c.h, c.group, c.length, c.s)), f32("scale"), f64("p"))
    strides = (*c.strides("q", "k", "v"), *c.mask_strides, *c.strides("y"))
    grid = (cdiv(c.length, shape["rows"]) * c.b * c.h, 1, 1)
    return Plan((Launch(kernel, grid, (*pointers, *strides, *sizes)),))
